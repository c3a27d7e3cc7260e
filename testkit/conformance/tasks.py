"""A synchronous client in an event loop: each task is an owner, and no wait blocks another one."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import leaselock
from leaselock.errors import NotHeld, WouldDeadlock
from testkit.conformance.harness import OP_TIMEOUT, TIMEOUT
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness

TASKS = 20


async def _in_another_task(body: Coroutine[Any, Any, None]) -> None:
    await asyncio.create_task(body, name="another task")


async def _is_refused(acquire: Callable[[], Coroutine[Any, Any, object]]) -> None:
    with raising(WouldDeadlock, "MyTask", "AsyncClient"):
        await acquire()


def _run(body: Coroutine[Any, Any, None]) -> None:
    """Run a task in an event loop of this thread."""

    async def main() -> None:
        await asyncio.create_task(body, name="MyTask")

    asyncio.run(main())


@scenario("threads")
async def tasks_of_one_loop_exclude_one_another(harness: Harness) -> None:
    """No update is lost between tasks that hold the lock while they await."""
    lock, balance = harness.lock("a"), [0]

    async def deposit() -> None:
        while balance[-1] < TASKS:
            with contextlib.suppress(WouldDeadlock):
                async with lock:
                    read = balance[-1]
                    await asyncio.sleep(0)
                    balance.append(read + 1)
                    return
            await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(deposit() for _ in range(TASKS)))

    _run(main())
    assert balance == list(range(TASKS + 1))


@scenario("threads")
async def wait_for_another_task_of_the_loop_is_refused(harness: Harness) -> None:
    """At once, by any lock object; a try is refused as usual, and nothing is left behind."""
    lock, same = harness.lock("a"), harness.lock("a")

    async def other() -> None:
        assert not lock.owned()
        assert await harness.try_once(lock) is None
        with raising(NotHeld):
            await lock.release()
        await _is_refused(lock.acquire)
        await _is_refused(lambda: same.acquire(timeout=60.0))

    async def main() -> None:
        async with lock as lease:
            async with same as inner:
                assert inner.token == lease.token
            await _in_another_task(other())
            assert lock.owned()
        await (await harness.must_acquire(same, 0)).release()

    _run(main())
    assert await lock.holders() == []
    await (await harness.must_acquire(lock, 0)).release()


@scenario("threads")
async def wait_for_another_client_of_the_loop_is_refused(harness: Harness) -> None:
    """Whether its tasks wait in the loop, by an AsyncClient, or block it."""
    lock, others = harness.lock("a"), harness.client()

    async def other() -> None:
        assert await harness.try_once(lock) is None
        await _is_refused(lambda: lock.acquire(timeout=TIMEOUT))

    async def main() -> None:
        async with others.lock("a"):
            await _in_another_task(other())
        await (await harness.must_acquire(lock)).release()
        async with leaselock.AsyncClient(harness.url, op_timeout=OP_TIMEOUT) as client:
            async with client.lock("a"):
                await _in_another_task(other())
            await (await harness.must_acquire(lock)).release()

    _run(main())


@scenario("threads")
async def wait_for_the_thread_of_the_loop_is_refused(harness: Harness) -> None:
    """The thread owns what it acquires outside of tasks; a task waits for it in vain."""
    lock, seen = harness.lock("a"), list[object]()

    async def task() -> None:
        with raising(WouldDeadlock, harness.current_name()):
            await lock.acquire()

        def callback() -> None:
            seen.append(lock.owned())

        asyncio.get_running_loop().call_soon(callback)
        await asyncio.sleep(0)

    async with lock:
        _run(task())
        assert lock.owned()
    assert seen == [True]


@scenario("threads", "has_queue")
async def wait_for_another_thread_or_client_is_no_deadlock(harness: Harness) -> None:
    """A task waits for what another client or a thread without a loop holds."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    held: list[object] = []

    async def hold(first: Lock) -> None:
        async with first:
            held.append(first)
            await harness.wait_for_waiters(lock, 1)

    async def task() -> None:
        async with lock:
            assert lock.owned()

    for first in (lock, rival):

        def is_held(first: Lock = first) -> bool:
            return held[-1:] == [first]

        peer = harness.spawn(hold, first)
        await harness.wait_until(is_held)
        _run(task())
        await peer.join()


@scenario("threads", "sharing", "has_queue", "fair")
async def reader_is_refused_behind_a_writer_that_waits_for_its_loop(harness: Harness) -> None:
    """The writer waits for a reader of the loop, which the second reader would block."""
    catalog, theirs = harness.first.rwlock("a"), harness.client().rwlock("a")

    async def write() -> None:
        async with theirs.write:
            pass

    async def other() -> None:
        await _is_refused(catalog.write.acquire)
        async with catalog.read:
            pass  # readers of one loop share
        peer = harness.spawn(write)
        await harness.wait_for_waiters(theirs.read, 1)
        await _is_refused(catalog.read.acquire)
        assert len(await theirs.read.waiters()) == 1
        peers.append(peer)

    async def main() -> None:
        async with catalog.read:
            await _in_another_task(other())

    peers: list[Any] = []
    _run(main())
    await peers[0].join()


@scenario("threads", "updates")
async def upgrade_beside_a_reader_of_the_loop_is_refused(harness: Harness) -> None:
    """The upgrade would wait for a reader that it blocks."""
    catalog = harness.first.rwlock("a")

    async def other() -> None:
        async with catalog.update as lease:
            assert not await lease.upgrade(0)
            await _is_refused(lease.upgrade)
            await _is_refused(catalog.write.acquire)
            lease.ensure()

    async def main() -> None:
        async with catalog.read:
            await _in_another_task(other())

    _run(main())
    async with catalog.update as lease:
        assert await lease.upgrade()


@scenario("threads", "permits", "has_queue")
async def wait_for_permits_of_the_loop_is_refused(harness: Harness) -> None:
    """If those that others hold are too few; otherwise it waits for these."""
    gpus, theirs = (client.semaphore("a", 3) for client in (harness.first, harness.client()))

    async def other() -> None:
        await _is_refused(lambda: gpus.acquire(2))
        rest = await theirs.try_acquire()
        assert rest is not None

        async def give_back() -> None:
            await harness.wait_for_waiters(gpus, 1)
            await rest.release()

        peer = harness.spawn(give_back)
        lease = await gpus.acquire()
        await peer.join()
        await lease.release()

    async def main() -> None:
        lease = await gpus.acquire(2)
        await _in_another_task(other())
        await lease.release()

    _run(main())


@scenario("threads", "permits", "has_queue", "fair")
async def permits_behind_a_claim_that_waits_for_the_loop_are_refused(harness: Harness) -> None:
    """A claim for all permits waits for those of the loop, and is not overtaken."""
    gpus, theirs = (client.semaphore("a", 3) for client in (harness.first, harness.client()))
    unknown = harness.first.semaphore("a", None)
    peers: list[Any] = []

    async def take_all() -> None:
        lease = await theirs.acquire(3)
        await lease.release()

    async def other() -> None:
        peers.append(harness.spawn(take_all))
        await harness.wait_for_waiters(gpus, 1)
        await _is_refused(gpus.acquire)
        await _is_refused(lambda: unknown.acquire(3))
        assert len(await gpus.waiters()) == 1

    async def main() -> None:
        lease = await gpus.acquire()
        await _in_another_task(other())
        await lease.release()

    _run(main())
    await peers[0].join()


@scenario("threads", "sharing")
async def writer_is_refused_behind_a_younger_reader_of_its_loop(harness: Harness) -> None:
    """The store names the oldest reader, which is in another thread."""
    catalog, far = harness.first.rwlock("a"), harness.client().rwlock("a")
    oldest = await far.read.acquire()

    async def other() -> None:
        assert await harness.try_once(catalog.write) is None
        await _is_refused(lambda: catalog.write.acquire(timeout=TIMEOUT))

    async def main() -> None:
        client = leaselock.AsyncClient(harness.url, op_timeout=OP_TIMEOUT)
        async with client, client.rwlock("a").read:
            await _in_another_task(other())

    async def loop() -> None:
        _run(main())

    await harness.spawn(loop).join()
    await oldest.release()
    await (await harness.must_acquire(catalog.write)).release()


@scenario("threads", "permits")
async def wait_for_permits_of_several_tasks_is_refused(harness: Harness) -> None:
    """None of them holds all, and the number may be known to the store only."""
    gpus, unknown = harness.first.semaphore("a", 2), harness.first.semaphore("a", None)

    async def other() -> None:
        assert await harness.try_once(gpus) is None
        await _is_refused(lambda: gpus.acquire(timeout=TIMEOUT))
        await _is_refused(lambda: unknown.acquire(timeout=TIMEOUT))

    async def main() -> None:
        async with leaselock.AsyncClient(harness.url, op_timeout=OP_TIMEOUT) as client:
            theirs = client.semaphore("a", 2)
            tasks = [asyncio.create_task(theirs.acquire(), name="MyTask") for _ in range(2)]
            leases = await asyncio.gather(*tasks)
            await _in_another_task(other())
            for lease in leases:
                await lease.release()

    _run(main())
    await (await harness.must_acquire(gpus)).release()


@scenario("threads", "updates")
async def upgrade_beside_a_reader_of_another_client_of_the_loop_is_refused(
    harness: Harness,
) -> None:
    """The reader is found in the store."""
    catalog = harness.first.rwlock("a")

    async def other() -> None:
        async with catalog.update as lease:
            await _is_refused(lambda: lease.upgrade(TIMEOUT))
            await _is_refused(lambda: catalog.write.acquire(timeout=TIMEOUT))
            lease.ensure()

    async def main() -> None:
        async with leaselock.AsyncClient(harness.url, op_timeout=OP_TIMEOUT) as client:
            async with client.rwlock("a").read:
                await _in_another_task(other())
            async with catalog.update as lease:
                assert await lease.upgrade()

    _run(main())


@scenario("threads")
async def locks_acquired_together_are_refused_together(harness: Harness) -> None:
    """None of them is held after the refusal."""
    both, first = harness.first.lock_all(["a", "b"]), harness.lock("a")

    async def released() -> bool:
        return not await first.locked()

    async def other() -> None:
        await _is_refused(both.acquire)
        await harness.wait_until(released)

    async def main() -> None:
        async with harness.lock("b"):
            await _in_another_task(other())

    _run(main())
    leases = await both.acquire()
    assert leases is not None
    await leases.release()
