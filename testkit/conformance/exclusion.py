"""Mutual exclusion of threads, tasks, clients and processes, and of all of them mixed."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import leaselock
from testkit.conformance.child_process import send_to_parent, wait_for_word
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness

BRIEFLY = 0.0003


class Tally:
    """A number that is increased without atomicity: read, let others run, write."""

    def __init__(self) -> None:
        self.value = 0
        self.inside = 0
        self.tokens: list[int] = []

    async def add(self, harness: Harness, lock: Lock, times: int) -> None:
        """Add one under the lock, *times* times."""
        for _ in range(times):
            async with lock as lease:
                before, self.inside = self.value, self.inside + 1
                assert self.inside == 1, "two holders at once"
                await harness.pause(BRIEFLY)
                self.tokens.append(lease.token)
                self.value, self.inside = before + 1, self.inside - 1


@scenario()
async def held_lock_is_not_granted(harness: Harness) -> None:
    """Neither another client nor another thread or task of the same client acquires it."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    lease = await harness.must_acquire(lock)
    assert await harness.try_once(rival) is None
    assert await harness.spawn(lock.try_acquire).join() is None
    await lease.release()
    assert not await lock.locked()
    await (await harness.must_acquire(rival)).release()


@scenario()
async def different_names_are_independent(harness: Harness) -> None:
    """Locks with different names are held at the same time, by one owner or several."""
    async with harness.lock("a") as one, harness.lock("b") as other:
        third = await harness.must_acquire(harness.client().lock("c"), 0)
        assert (one.name, other.name, third.name) == ("a", "b", "c")


@scenario()
async def owners_of_one_client_exclude_each_other(harness: Harness) -> None:
    """Threads or tasks that share a lock object lose no update."""
    tally, lock = Tally(), harness.lock("a")
    others = [harness.spawn(tally.add, harness, lock, 20) for _ in range(8)]
    for other in others:
        await other.join()
    assert tally.value == 160


@scenario()
async def clients_of_one_process_exclude_each_other(harness: Harness) -> None:
    """Clients of one process lose no update."""
    tally = Tally()
    locks = [harness.client().lock("a") for _ in range(6)]
    for other in [harness.spawn(tally.add, harness, lock, 20) for lock in locks]:
        await other.join()
    assert tally.value == 120
    assert tally.tokens == sorted(set(tally.tokens))


@scenario("has_queue")
async def many_waiters_are_all_served(harness: Harness) -> None:
    """Many concurrent waiters are all served, one after the other."""
    # The waiters keep the store of a small machine busy for longer than a reply may take.
    tally, lock = Tally(), harness.client(op_timeout=60.0).lock("a")
    count = min(harness.many, harness.store.max_waiters)
    for other in [harness.spawn(tally.add, harness, lock, 1) for _ in range(count)]:
        await other.join()
    assert tally.value == count
    assert tally.tokens == sorted(set(tally.tokens))


@scenario()
async def threads_and_tasks_of_one_process_exclude_each_other(harness: Harness) -> None:
    """A client of one driver excludes clients of the other driver."""
    async with harness.lock("a"):
        with leaselock.Client(harness.url) as client:
            assert client.lock("a").try_acquire() is None
        answers: list[bool] = []
        thread = threading.Thread(target=lambda: answers.append(_try_in_asyncio(harness.url)))
        thread.start()
        await harness.wait_until(lambda: not thread.is_alive())
        assert answers == [False]


def _try_in_asyncio(url: str) -> bool:
    async def attempt() -> bool:
        async with leaselock.AsyncClient(url) as client:
            return await client.lock("a").try_acquire() is not None

    return asyncio.run(attempt())


@scenario("multiprocess")
async def processes_exclude_each_other(harness: Harness) -> None:
    """Processes with threads and with tasks lose no update of a file, and no token repeats."""
    total, tokens = harness.folder / "total", harness.folder / "tokens"
    total.write_text("0")
    drivers = ("threads", "asyncio", "threads", "asyncio")
    children = [harness.process(add_up, 40, driver=driver) for driver in drivers]
    for child in children:
        await child.wait_for_word("ready")
    for child in children:
        child.send("go")
    for child in children:
        await child.end()
    granted = [int(token) for token in tokens.read_text().split()]
    assert total.read_text() == "160"
    assert granted == sorted(set(granted))


async def add_up(harness: Harness, times: int) -> None:
    """In a process: increase the number in a file without atomicity, but under the lock."""
    lock = harness.lock("a")
    send_to_parent("ready")
    await wait_for_word(harness, "go")
    for _ in range(times):
        async with lock as lease:
            before = int(_read(harness.folder / "total"))
            await harness.pause(BRIEFLY)
            _write(harness.folder, before + 1, lease.token)


def _read(path: Path) -> str:
    return path.read_text()


def _write(folder: Path, total: int, token: int) -> None:
    (folder / "total").write_text(str(total))
    with open(folder / "tokens", "a") as tokens:
        tokens.write(f"{token}\n")
