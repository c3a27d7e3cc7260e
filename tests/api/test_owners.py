"""A `with` entered and left by different threads, and lock objects that are their own owner."""

from __future__ import annotations

import asyncio
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

import pytest
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

TIMEOUT = 60.0
R = TypeVar("R")


def elsewhere(function: Callable[..., R], *arguments: object) -> R:
    """Call *function* in a thread of its own."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function, *arguments).result(TIMEOUT)


def test_each_with_leaves_its_own_entry(file: str) -> None:
    """Two threads enter one lock object, one after the other; a third one leaves for both."""
    with leaselock.Client(file) as client:
        lock = client.lock("a", timeout=TIMEOUT)
        first = elsewhere(lock.__enter__)
        entered = threading.Event()

        def second() -> leaselock.Lease:
            with lock as lease:
                entered.set()
                return lease

        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second)
            eventually(lambda: client.lock("a").waiters())
            assert not entered.is_set()
            elsewhere(lock.__exit__, None, None, None)
            assert waiting.result(TIMEOUT).token > first.token
        assert not lock.locked()


def test_exit_in_a_thread_that_holds_leaves_its_own_with(file: str) -> None:
    """Two locks of one name in two threads: neither `with` ends the other's."""
    with leaselock.Client(file) as client:
        one, other = client.lock("a"), client.lock("b")
        elsewhere(one.__enter__)
        with other:
            elsewhere(one.__exit__, None, None, None)
            assert not one.locked()
            assert other.locked()


def test_bodies_that_end_in_threads_of_one_another_keep_their_leases(file: str) -> None:
    """Two bodies of one lock object begin in two threads of a pool, and the first ends in that of
    the second, as dependencies of a web framework do.
    """
    with (
        leaselock.Client(file) as client,
        ThreadPoolExecutor(1) as one,
        ThreadPoolExecutor(1) as two,
    ):
        permits = client.semaphore("a", permits=2)

        def body() -> Generator[leaselock.Lease, None, None]:
            with permits as lease:
                yield lease
                lease.ensure()

        first, second = body(), body()
        ended = one.submit(next, first).result(TIMEOUT)
        kept = two.submit(next, second).result(TIMEOUT)
        two.submit(list, first).result(TIMEOUT)
        with pytest.raises(leaselock.NotHeld):
            ended.ensure()
        kept.ensure()
        one.submit(list, second).result(TIMEOUT)
        assert permits.available() == 2


def test_task_that_leaves_is_not_the_one_that_entered(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client:
            lock = client.lock("a")
            await asyncio.create_task(lock.__aenter__())
            await asyncio.create_task(lock.__aexit__(None, None, None))
            assert not await lock.locked()

    asyncio.run(main())


def test_lock_that_is_the_owner_is_not_reentrant(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a", owner="lock")
        lease = lock.acquire()
        assert lock.try_acquire() is None
        assert client.lock("a", owner="lock").try_acquire() is None
        assert lock.owned()
        assert elsewhere(lock.owned)
        elsewhere(lock.release)
        assert not lock.locked()
        assert not lock.owned()
        with pytest.raises(leaselock.NotHeld):
            lease.release()
        with pytest.raises(leaselock.NotHeld):
            lock.release()


def test_lock_that_is_the_owner_waits_for_itself(file: str) -> None:
    with leaselock.Client(file) as client:
        lock = client.lock("a", owner="lock")
        first = lock.acquire()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(lock.acquire, timeout=TIMEOUT)
            eventually(lock.waiters)
            first.release()
            second = waiting.result(TIMEOUT)
            assert second.token > first.token
            elsewhere(lock.release)
        assert not lock.locked()


def test_lock_that_is_the_owner_in_asyncio(file: str) -> None:
    async def main() -> None:
        async with leaselock.AsyncClient(file) as client:
            lock = client.lock("a", owner="lock")
            await asyncio.create_task(lock.acquire())
            assert await lock.try_acquire() is None
            await asyncio.create_task(lock.release())
            assert not await lock.locked()

    asyncio.run(main())


@pytest.mark.parametrize("owner", ["thread", "task", False, 1])
def test_other_owners_are_refused(file: str, owner: object) -> None:
    with leaselock.Client(file) as client, pytest.raises((TypeError, ValueError), match="owner"):
        client.lock("a", owner=owner)  # type: ignore[arg-type]


def test_cancel_ends_every_waiting_acquire_of_this_lock_object_only(file: str) -> None:
    with leaselock.Client(file) as client:
        lock, like = client.lock("a"), client.lock("a")
        held = client.lock("a", owner="lock").acquire()
        with ThreadPoolExecutor(3) as pool:
            mine = [pool.submit(lock.acquire) for _ in range(2)]
            its = pool.submit(like.acquire)
            eventually(lambda: len(lock.waiters()) == 3)
            assert lock.cancel() == 2
            for waiting in mine:
                with pytest.raises(leaselock.AcquireCancelled):
                    waiting.result(TIMEOUT)
            assert len(lock.waiters()) == 1
            held.release()
            assert its.result(TIMEOUT) is not None


def test_bodies_that_one_function_begins_and_ends_keep_their_permits() -> None:
    """Its frames end at once, and the next one may have the address of an earlier one."""
    with leaselock.Client(f"memory://{uuid.uuid4().hex}") as client:
        semaphore = client.semaphore("s", permits=2)

        def control(*, begin: bool) -> leaselock.Lease | None:
            if begin:
                return semaphore.__enter__()
            semaphore.__exit__(None, None, None)
            return None

        first = control(begin=True)
        assert first is not None

        def other() -> None:
            second = control(begin=True)
            assert second is not None
            control(begin=False)
            assert second._handle.released
            assert not first._handle.released

        for _ in range(20):
            with ThreadPoolExecutor(1) as pool:
                pool.submit(other).result()
        control(begin=False)
        assert first._handle.released
