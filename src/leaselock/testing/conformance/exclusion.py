"""At most one holds: threads or tasks, clients, processes, and all of them mixed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import leaselock
from leaselock.testing.conformance.child import hear, say
from leaselock.testing.conformance.scenario import scenario

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World

A_MOMENT = 0.0003


class Tally:
    """A number that is added to as carelessly as can be: read, let others run, write."""

    def __init__(self) -> None:
        self.value = 0
        self.inside = 0
        self.tokens: list[int] = []

    async def add(self, world: World, lock: Lock, times: int) -> None:
        """Add one, under the lock."""
        for _ in range(times):
            async with lock as lease:
                before, self.inside = self.value, self.inside + 1
                assert self.inside == 1, "two are inside at once"
                await world.pause(A_MOMENT)
                self.tokens.append(lease.token)
                self.value, self.inside = before + 1, self.inside - 1


@scenario()
async def nobody_enters_while_another_holds(world: World) -> None:
    """Neither another client nor another holder of the same one."""
    lock, rival = world.lock("a"), world.client().lock("a")
    lease = await world.take(lock)
    assert await rival.acquire(timeout=0) is None
    assert await world.spawn(lock.acquire, 0).join() is None
    await lease.release()
    assert not await lock.locked()
    await (await world.take(rival)).release()


@scenario()
async def names_are_locks_of_their_own(world: World) -> None:
    """Who holds one may hold another, and so may others."""
    async with world.lock("a") as one, world.lock("b") as other:
        third = await world.take(world.client().lock("c"), 0)
        assert (one.name, other.name, third.name) == ("a", "b", "c")


@scenario()
async def holders_of_one_client_exclude_each_other(world: World) -> None:
    """Threads or tasks with one lock object lose no update."""
    tally, lock = Tally(), world.lock("a")
    others = [world.spawn(tally.add, world, lock, 20) for _ in range(8)]
    for other in others:
        await other.join()
    assert tally.value == 160


@scenario()
async def clients_of_one_process_exclude_each_other(world: World) -> None:
    """Each with a client of its own, they lose no update."""
    tally = Tally()
    locks = [world.client().lock("a") for _ in range(6)]
    for other in [world.spawn(tally.add, world, lock, 20) for lock in locks]:
        await other.join()
    assert tally.value == 120
    assert tally.tokens == sorted(set(tally.tokens))


@scenario("queue")
async def a_crowd_waits_for_one_lock(world: World) -> None:
    """Many at once are all served, one after the other."""
    # So many at once keep a small machine's store busy for longer than one answer may take.
    tally, lock = Tally(), world.client(op_timeout=60.0).lock("a")
    crowd = min(world.crowd, world.store.crowd)
    for other in [world.spawn(tally.add, world, lock, 1) for _ in range(crowd)]:
        await other.join()
    assert tally.value == crowd
    assert tally.tokens == sorted(set(tally.tokens))


@scenario()
async def threads_and_tasks_of_one_process_exclude_each_other(world: World) -> None:
    """A client of one kind keeps those of the other kind out."""
    async with world.lock("a"):
        with leaselock.Client(world.url) as client:
            assert client.lock("a").acquire(timeout=0) is None
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(_try_in_asyncio(world.url)))
        thread.start()
        await world.until(lambda: not thread.is_alive())
        assert answers == [False]


def _try_in_asyncio(url: str) -> bool:
    async def attempt() -> bool:
        async with leaselock.AsyncClient(url) as client:
            return await client.lock("a").acquire(timeout=0) is not None

    return asyncio.run(attempt())


@scenario("processes")
async def processes_exclude_each_other(world: World) -> None:
    """Processes with threads and with tasks lose no update of one file, and no token repeats."""
    total, tokens = world.folder / "total", world.folder / "tokens"
    total.write_text("0")
    drivers = ("threads", "asyncio", "threads", "asyncio")
    children = [world.process(add_up, 40, driver=driver) for driver in drivers]
    for child in children:
        await child.says("ready")
    for child in children:
        child.tell("go")
    for child in children:
        await child.end()
    granted = [int(token) for token in tokens.read_text().split()]
    assert total.read_text() == "160"
    assert granted == sorted(set(granted))


async def add_up(world: World, times: int) -> None:
    """In a process: add to the number in a file, carelessly, but under the lock."""
    lock = world.lock("a")
    say("ready")
    await hear(world, "go")
    for _ in range(times):
        async with lock as lease:
            before = int(_read(world.folder / "total"))
            await world.pause(A_MOMENT)
            _write(world.folder, before + 1, lease.token)


def _read(path: Path) -> str:
    return path.read_text()


def _write(folder: Path, total: int, token: int) -> None:
    (folder / "total").write_text(str(total))
    with open(folder / "tokens", "a") as tokens:
        tokens.write(f"{token}\n")
