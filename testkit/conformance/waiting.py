"""Waits end at their timeout, or by a notification of the release, not by polling."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from leaselock.errors import AcquireCancelled, AcquireTimeout
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.conformance.api_types import Lock
    from testkit.conformance.world import CountedTries, World

# Seconds; a waiter that is not notified rechecks much later.
WOKEN = 1.0
# For how many seconds a scenario counts what waiters ask, and the shortest interval after which
# one asks without a notification.
LOOKED, SHORTEST_INTERVAL = 0.1, 0.9
# Seconds between two signals, and their number at most.
BEAT, BEATS = 0.01, 1000


@scenario()
async def zero_timeout_does_not_wait(world: World) -> None:
    """timeout=0 returns at once, whatever the lock's own timeout is."""

    async def attempt(name: str) -> None:
        lock = world.client().lock(name, timeout=20.0)
        async with world.lock(name):
            assert await world.try_once(lock) is None  # it makes a connection
            began = world.now()
            assert await lock.try_acquire() is None
            assert await lock.try_acquire() is None
            world.check_elapsed(began, 0.2)
        await (await world.must_acquire(lock, 0)).release()

    await world.retry_if_slow(5, attempt)


@scenario()
async def wait_ends_at_its_timeout(world: World) -> None:
    """By the timeout of the call, with None; or by that of the lock, with AcquireTimeout."""

    async def attempt(name: str) -> None:
        async with world.lock(name):
            client = world.client()
            for own in (None, 0.3):
                began = world.now()
                lock = client.lock(name, timeout=own)
                if own is None:
                    assert await lock.try_acquire(timeout=0.3) is None
                else:
                    with raising(AcquireTimeout):
                        await lock.acquire()
                assert world.now() - began > 0.299
                world.check_elapsed(began, 0.5)

    await world.retry_if_slow(5, attempt)


@scenario("has_queue")
async def wake_ups_do_not_extend_the_timeout(world: World) -> None:
    """Waiters ahead leave one by one, the last first, so that each wakes the one behind."""

    async def attempt(name: str) -> None:
        lock = world.client().lock(name)
        async with world.lock(name):
            ahead = [
                world.spawn(
                    partial(lock.try_acquire, timeout=(0.3 - 0.006 * n) * world.store.reply_factor)
                )
                for n in range(25)
            ]
            await world.wait_for_waiters(lock, len(ahead), within=world.store.reply_factor)
            began = world.now()
            assert await lock.try_acquire(timeout=0.3 * world.store.reply_factor) is None
            assert world.now() - began > 0.299 * world.store.reply_factor
            world.check_elapsed(began, 0.5 * world.store.reply_factor)
            assert [await other.join() for other in ahead] == [None] * 25

    await world.retry_if_slow(5, attempt)


@scenario()
async def body_is_not_entered_after_the_timeout(world: World) -> None:
    """AcquireTimeout names the lock and its holder."""
    lock = world.client().lock("order 5", timeout=0.05)
    async with world.lock("order 5", label="the nightly run"):
        with raising(AcquireTimeout, "order 5", str(os.getpid()), "the nightly run") as caught:
            async with lock:
                raise AssertionError("entered")
    assert isinstance(caught[0], TimeoutError)
    assert caught[0].name == "order 5"
    async with lock:
        assert lock.owned()


@scenario("has_queue")
async def wait_without_a_timeout_lasts(world: World) -> None:
    """None and infinity wait until the lock is free, by the lock or by the call."""
    locks = [world.client().lock("a", timeout=own) for own in (None, float("inf"), 0.01)]
    timeouts = [None, None, float("inf")]
    async with world.lock("a") as held:
        others = [
            world.spawn(_token, world, lock, timeout)
            for lock, timeout in zip(locks, timeouts, strict=True)
        ]
        await world.wait_for_waiters(locks[0], 3)
    assert all([await other.join() > held.token for other in others])


async def _token(world: World, lock: Lock, timeout: float | None) -> int:
    lease = await world.must_acquire(lock, timeout)
    await lease.release()
    return lease.token


@scenario("has_queue", "notifies")
async def cancelling_one_wait_leaves_the_others_alone(world: World) -> None:
    """`cancel` ends the waits through one lock object. The other waiters of the client keep their
    places, send nothing for that, and do not ask more often from then on.
    """
    client = world.client()
    tries = world.count_tries(client)
    mine, others = client.lock("a"), client.lock("a")
    count = min(200, world.many, world.store.max_waiters - 1)
    async with world.lock("a"):
        peers = [world.spawn(_token, world, others, None) for _ in range(count // 2)]
        await world.wait_for_waiters(others, len(peers))
        cancelled = world.spawn(mine.acquire)
        await world.wait_for_waiters(others, len(peers) + 1)
        peers += [world.spawn(_token, world, others, None) for _ in range(count - len(peers))]
        await world.wait_for_waiters(others, count + 1)
        places = [waiter.since for waiter in await others.waiters()]
        await world.wait_until(lambda: _asks_no_more(world, tries))
        before = tries.count
        assert mine.cancel() == 1
        assert isinstance(await cancelled.end(), AcquireCancelled)
        await world.wait_for_waiters(others, count)
        left = [waiter.since for waiter in await others.waiters()]
        assert [since for since in places if since in left] == left
        await world.pause(LOOKED)
        # Without a notification each waiter asks once in an interval. The first one and the one
        # behind the cancelled one may be notified.
        intervals = int((world.now() - tries.began) / SHORTEST_INTERVAL)
        assert tries.count - before <= count * intervals + 2
    assert len({await peer.join() for peer in peers}) == count


async def _asks_no_more(world: World, tries: CountedTries) -> bool:
    before = tries.count
    await world.pause(LOOKED)
    return tries.count == before


@scenario("has_queue")
async def release_wakes_the_waiter(world: World) -> None:
    """At once, whether it belongs to the same client or to another."""

    async def attempt(name: str) -> None:
        for waiting in (world.lock(name), world.client().lock(name)):
            lease = await world.must_acquire(world.lock(name))
            other = world.spawn(_when, world, waiting)
            await world.wait_for_waiters(waiting, 1)
            released = world.now()
            await lease.release()
            assert await other.join() >= released
            world.check_elapsed(released, WOKEN)

    await world.retry_if_slow(3, attempt)


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()


@scenario("has_queue")
async def timeout_removes_the_waiter(world: World) -> None:
    """No waiter is left in the store, and the next one is served."""

    async def attempt(name: str) -> None:
        lock, impatient = world.lock(name), world.client().lock(name)
        async with lock:
            assert await world.try_once(impatient, 0.02) is None
            assert await lock.waiters() == []
            first = world.spawn(partial(impatient.try_acquire, timeout=world.store.lease))
            await world.wait_for_waiters(lock, 1, within=world.store.lease)
            second = world.spawn(_when, world, impatient)
            assert await first.join() is None
            await world.wait_for_waiters(lock, 1)
        await second.join()

    await world.retry_if_slow(5, attempt)


@scenario("threads", alone=True)
async def signals_do_not_extend_a_wait(world: World) -> None:
    """An interrupted system call is repeated with the remaining time."""

    async def attempt(name: str) -> None:
        lock, rival = world.lock(name), world.client().lock(name)
        async with lock:
            with repeated_signals():
                began = world.now()
                assert await rival.try_acquire(timeout=0.5) is None
                world.check_elapsed(began, 2.0)

    await world.retry_if_slow(3, attempt)


@contextmanager
def repeated_signals() -> Iterator[None]:
    """Send this thread signals that have a handler, one after another."""
    over, struck = threading.Event(), threading.get_ident()

    def strike() -> None:
        for _ in range(BEATS):
            if over.wait(BEAT):
                return
            signal.pthread_kill(struck, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
