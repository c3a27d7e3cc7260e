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
    from testkit.conformance.harness import CountedTries, Harness

# Seconds; a waiter that is not notified rechecks much later.
WOKEN = 1.0
# For how many seconds a scenario counts what waiters ask, and the shortest interval after which
# one asks without a notification.
LOOKED, SHORTEST_INTERVAL = 0.1, 0.9
# Seconds between two signals, and their number at most.
BEAT, BEATS = 0.01, 1000


@scenario()
async def zero_timeout_does_not_wait(harness: Harness) -> None:
    """timeout=0 returns at once, whatever the lock's own timeout is."""

    async def attempt(name: str) -> None:
        lock = harness.client().lock(name, timeout=20.0)
        async with harness.lock(name):
            assert await harness.try_once(lock) is None  # it makes a connection
            began = harness.now()
            assert await lock.try_acquire() is None
            assert await lock.try_acquire() is None
            harness.check_elapsed(began, 0.2)
        await (await harness.must_acquire(lock, 0)).release()

    await harness.retry_if_slow(5, attempt)


@scenario()
async def wait_ends_at_its_timeout(harness: Harness) -> None:
    """By the timeout of the call, with None; or by that of the lock, with AcquireTimeout."""

    async def attempt(name: str) -> None:
        async with harness.lock(name):
            client = harness.client()
            for own in (None, 0.3):
                began = harness.now()
                lock = client.lock(name, timeout=own)
                if own is None:
                    assert await lock.try_acquire(timeout=0.3) is None
                else:
                    with raising(AcquireTimeout):
                        await lock.acquire()
                assert harness.now() - began > 0.299
                harness.check_elapsed(began, 0.5)

    await harness.retry_if_slow(5, attempt)


@scenario("has_queue")
async def wake_ups_do_not_extend_the_timeout(harness: Harness) -> None:
    """Waiters ahead leave one by one, the last first, so that each wakes the one behind."""

    async def attempt(name: str) -> None:
        lock = harness.client().lock(name)
        async with harness.lock(name):
            ahead = [
                harness.spawn(
                    partial(
                        lock.try_acquire, timeout=(0.3 - 0.006 * n) * harness.store.reply_factor
                    )
                )
                for n in range(25)
            ]
            await harness.wait_for_waiters(lock, len(ahead), within=harness.store.reply_factor)
            began = harness.now()
            assert await lock.try_acquire(timeout=0.3 * harness.store.reply_factor) is None
            assert harness.now() - began > 0.299 * harness.store.reply_factor
            harness.check_elapsed(began, 0.5 * harness.store.reply_factor)
            assert [await other.join() for other in ahead] == [None] * 25

    await harness.retry_if_slow(5, attempt)


@scenario()
async def body_is_not_entered_after_the_timeout(harness: Harness) -> None:
    """AcquireTimeout names the lock and its holder."""
    lock = harness.client().lock("order 5", timeout=0.05)
    async with harness.lock("order 5", label="the nightly run"):
        with raising(AcquireTimeout, "order 5", str(os.getpid()), "the nightly run") as caught:
            async with lock:
                raise AssertionError("entered")
    assert isinstance(caught[0], TimeoutError)
    assert caught[0].name == "order 5"
    async with lock:
        assert lock.owned()


@scenario("has_queue")
async def wait_without_a_timeout_lasts(harness: Harness) -> None:
    """None and infinity wait until the lock is free, by the lock or by the call."""
    locks = [harness.client().lock("a", timeout=own) for own in (None, float("inf"), 0.01)]
    timeouts = [None, None, float("inf")]
    async with harness.lock("a") as held:
        others = [
            harness.spawn(_token, harness, lock, timeout)
            for lock, timeout in zip(locks, timeouts, strict=True)
        ]
        await harness.wait_for_waiters(locks[0], 3)
    assert all([await other.join() > held.token for other in others])


async def _token(harness: Harness, lock: Lock, timeout: float | None) -> int:
    lease = await harness.must_acquire(lock, timeout)
    await lease.release()
    return lease.token


@scenario("has_queue", "notifies")
async def cancelling_one_wait_leaves_the_others_alone(harness: Harness) -> None:
    """`cancel` ends the waits through one lock object. The other waiters of the client keep their
    places, send nothing for that, and do not ask more often from then on.
    """
    client = harness.client()
    tries = harness.count_tries(client)
    mine, others = client.lock("a"), client.lock("a")
    count = min(200, harness.many, harness.store.max_waiters - 1)
    async with harness.lock("a"):
        peers = [harness.spawn(_token, harness, others, None) for _ in range(count // 2)]
        await harness.wait_for_waiters(others, len(peers))
        cancelled = harness.spawn(mine.acquire)
        await harness.wait_for_waiters(others, len(peers) + 1)
        peers += [harness.spawn(_token, harness, others, None) for _ in range(count - len(peers))]
        await harness.wait_for_waiters(others, count + 1)
        places = [waiter.since for waiter in await others.waiters()]
        await harness.wait_until(lambda: _asks_no_more(harness, tries))
        before = tries.count
        assert mine.cancel() == 1
        assert isinstance(await cancelled.end(), AcquireCancelled)
        await harness.wait_for_waiters(others, count)
        left = [waiter.since for waiter in await others.waiters()]
        assert [since for since in places if since in left] == left
        await harness.pause(LOOKED)
        # Without a notification each waiter asks once in an interval. The first one and the one
        # behind the cancelled one may be notified.
        intervals = int((harness.now() - tries.began) / SHORTEST_INTERVAL)
        assert tries.count - before <= count * intervals + 2
    assert len({await peer.join() for peer in peers}) == count


async def _asks_no_more(harness: Harness, tries: CountedTries) -> bool:
    before = tries.count
    await harness.pause(LOOKED)
    return tries.count == before


@scenario("has_queue")
async def release_wakes_the_waiter(harness: Harness) -> None:
    """At once, whether it belongs to the same client or to another."""

    async def attempt(name: str) -> None:
        for waiting in (harness.lock(name), harness.client().lock(name)):
            lease = await harness.must_acquire(harness.lock(name))
            other = harness.spawn(_when, harness, waiting)
            await harness.wait_for_waiters(waiting, 1)
            released = harness.now()
            await lease.release()
            assert await other.join() >= released
            harness.check_elapsed(released, WOKEN)

    await harness.retry_if_slow(3, attempt)


async def _when(harness: Harness, lock: Lock) -> float:
    async with lock:
        return harness.now()


@scenario("has_queue")
async def timeout_removes_the_waiter(harness: Harness) -> None:
    """No waiter is left in the store, and the next one is served."""

    async def attempt(name: str) -> None:
        lock, impatient = harness.lock(name), harness.client().lock(name)
        async with lock:
            assert await harness.try_once(impatient, 0.02) is None
            assert await lock.waiters() == []
            first = harness.spawn(partial(impatient.try_acquire, timeout=harness.store.lease))
            await harness.wait_for_waiters(lock, 1, within=harness.store.lease)
            second = harness.spawn(_when, harness, impatient)
            assert await first.join() is None
            await harness.wait_for_waiters(lock, 1)
        await second.join()

    await harness.retry_if_slow(5, attempt)


@scenario("threads", alone=True)
async def signals_do_not_extend_a_wait(harness: Harness) -> None:
    """An interrupted system call is repeated with the remaining time."""

    async def attempt(name: str) -> None:
        lock, rival = harness.lock(name), harness.client().lock(name)
        async with lock:
            with repeated_signals():
                began = harness.now()
                assert await rival.try_acquire(timeout=0.5) is None
                harness.check_elapsed(began, 2.0)

    await harness.retry_if_slow(3, attempt)


@contextmanager
def repeated_signals() -> Iterator[None]:
    """Send this thread signals that have a handler, one after another."""
    over, target = threading.Event(), threading.get_ident()

    def strike() -> None:
        for _ in range(BEATS):
            if over.wait(BEAT):
                return
            signal.pthread_kill(target, signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    thread = threading.Thread(target=strike)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        signal.signal(signal.SIGUSR1, before)
