"""Waits have deadlines that hold, and are ended by the release, not by looking again and again."""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from leaselock.errors import AcquireTimeout
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World

# Looking again by itself takes a waiter much longer than being woken.
WOKEN = 1.0
# How often a signal comes, and for how long at most.
BEAT, BEATS = 0.01, 1000


@scenario()
async def nothing_is_waited_for_without_a_timeout_to_wait(world: World) -> None:
    """timeout=0 answers at once, on a lock of either kind."""

    async def attempt(name: str) -> None:
        lock = world.client().lock(name, timeout=20.0)
        async with world.lock(name):
            began = world.now()
            assert await lock.acquire(timeout=0) is None
            assert await lock.acquire(timeout=0.0) is None
            world.punctual(began, 0.2)
        await (await world.take(lock, 0)).release()

    await world.best_of(5, attempt)


@scenario()
async def a_wait_ends_on_time(world: World) -> None:
    """0.3 s are 0.3 s, by the call and by the lock's own timeout, which the call overrules."""

    async def attempt(name: str) -> None:
        async with world.lock(name):
            client = world.client()
            for lock, timeout in ((client.lock(name), 0.3), (client.lock(name, timeout=0.3), None)):
                began = world.now()
                assert await lock.acquire(timeout) is None
                assert world.now() - began > 0.299
                world.punctual(began, 0.5)

    await world.best_of(5, attempt)


@scenario("queue")
async def a_wait_ends_on_time_however_often_it_is_woken(world: World) -> None:
    """Those ahead leave one by one, the last first, so that each wakes the one behind."""

    async def attempt(name: str) -> None:
        lock = world.client().lock(name)
        async with world.lock(name):
            ahead = [
                world.spawn(lock.acquire, (0.3 - 0.006 * n) * world.store.slow) for n in range(25)
            ]
            await world.until_waiting(lock, len(ahead), within=world.store.slow)
            began = world.now()
            assert await lock.acquire(timeout=0.3 * world.store.slow) is None
            assert world.now() - began > 0.299 * world.store.slow
            world.punctual(began, 0.5 * world.store.slow)
            assert [await other.join() for other in ahead] == [None] * 25

    await world.best_of(5, attempt)


@scenario()
async def a_body_is_not_entered_after_the_timeout(world: World) -> None:
    """AcquireTimeout says which lock, and who has it."""
    lock = world.client().lock("order 5", timeout=0.05)
    async with world.lock("order 5", label="the nightly run"):
        with raising(AcquireTimeout, "order 5", str(os.getpid()), "the nightly run") as caught:
            async with lock:
                raise AssertionError("entered")
    assert isinstance(caught[0], TimeoutError)
    assert caught[0].name == "order 5"
    async with lock:
        assert lock.owned()


@scenario("queue")
async def a_wait_without_a_timeout_goes_on(world: World) -> None:
    """None and infinity wait until the lock is free, by the lock or by the call."""
    locks = [world.client().lock("a", timeout=own) for own in (None, float("inf"), 0.01)]
    timeouts = [None, None, float("inf")]
    async with world.lock("a") as held:
        others = [
            world.spawn(_token, world, lock, timeout)
            for lock, timeout in zip(locks, timeouts, strict=True)
        ]
        await world.until_waiting(locks[0], 3)
    assert all([await other.join() > held.token for other in others])


async def _token(world: World, lock: Lock, timeout: float | None) -> int:
    lease = await world.take(lock, timeout)
    await lease.release()
    return lease.token


@scenario("queue")
async def a_release_wakes_the_waiter(world: World) -> None:
    """At once, be it of the same client or of another."""

    async def attempt(name: str) -> None:
        for waiting in (world.lock(name), world.client().lock(name)):
            lease = await world.take(world.lock(name))
            other = world.spawn(_when, world, waiting)
            await world.until_waiting(waiting, 1)
            released = world.now()
            await lease.release()
            assert await other.join() >= released
            world.punctual(released, WOKEN)

    await world.best_of(3, attempt)


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()


@scenario("queue")
async def who_gives_up_leaves_the_queue(world: World) -> None:
    """Nobody is left waiting in the store, and the next one is served."""
    lock, impatient = world.lock("a"), world.client().lock("a")
    async with lock:
        assert await impatient.acquire(timeout=0.02) is None
        assert await lock.waiters() == []
        first = world.spawn(impatient.acquire, 0.2)
        await world.until_waiting(lock, 1)
        second = world.spawn(_when, world, impatient)
        assert await first.join() is None
        await world.until_waiting(lock, 1)
    await second.join()


@scenario("threads", alone=True)
async def signals_do_not_prolong_a_wait(world: World) -> None:
    """A system call that a signal interrupts is begun anew, with the time that is left of it."""

    async def attempt(name: str) -> None:
        lock, rival = world.lock(name), world.client().lock(name)
        async with lock:
            with heartbeat():
                began = world.now()
                assert await rival.acquire(timeout=0.5) is None
                world.punctual(began, 2.0)

    await world.best_of(3, attempt)


@contextmanager
def heartbeat() -> Iterator[None]:
    """A signal that has a handler strikes this thread again and again."""
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
