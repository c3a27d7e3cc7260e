"""Waiters are served first come, first served; dead and frozen ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.conformance.child_process import Child, send_to_parent, wait_for_word
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness

# Seconds until the next grant, if the store detects the death of a process at once.
AT_ONCE = 1.0
# Seconds that a busy machine may add to a bound of the store.
GRACE = 1.0
# A lease that ends in no scenario.
LONG = 30.0


@scenario("has_queue", "fair")
async def waiters_are_served_in_order(harness: Harness) -> None:
    """In order of arrival, whichever client they belong to."""
    served: list[int] = []
    lock, clients = harness.lock("a"), (harness.client(), harness.client())
    async with lock:
        others = []
        for number in range(8):
            waiting = clients[number % 2].lock("a")
            others.append(harness.spawn(_be_served, waiting, served, number))
            await harness.wait_for_waiters(lock, number + 1)
    for other in others:
        await other.join()
    assert served == list(range(8))


async def _be_served(lock: Lock, served: list[int], number: int) -> None:
    async with lock:
        served.append(number)


@scenario("has_queue", "fair")
async def releaser_does_not_overtake_the_waiter(harness: Harness) -> None:
    """A release grants the lock to the waiter, even if its releaser acquires again at once."""
    lock, waiting = harness.lock("a"), harness.client().lock("a")
    lease = await harness.must_acquire(lock)
    served: list[int] = []
    other = harness.spawn(_be_served, waiting, served, 1)
    await harness.wait_for_waiters(lock, 1)
    await lease.release()
    async with lock:
        assert served == [1]
    await other.join()


async def keep(harness: Harness, name: str, length: float = 0.0) -> None:
    """In a process: wait for the lock, and hold it until the request to end."""
    shortest = LONG if harness.store.detects_death else harness.store.lease
    async with harness.lock(name, lease=max(length, shortest)):
        send_to_parent("holds")
        await wait_for_word(harness, "end")


@scenario("has_queue", "multiprocess")
async def dead_waiter_is_skipped(harness: Harness) -> None:
    """A process killed in the queue delays no later waiter."""

    async def attempt(name: str) -> None:
        lock, behind = harness.lock(name), harness.client().lock(name)
        lease = await harness.must_acquire(lock)
        dead = await _queue(harness, lock, 1)
        other = harness.spawn(_when, harness, behind)
        await harness.wait_for_waiters(lock, 2)
        await kill(harness, dead)
        released = harness.now()
        await lease.release()
        await _expect_within(harness, await other.join() - released)

    await harness.retry_if_slow(3, attempt)


@scenario("has_queue", "multiprocess")
async def waiter_that_dies_after_its_grant_is_skipped(harness: Harness) -> None:
    """The lock was granted to a process that died before it confirmed the grant."""

    async def attempt(name: str) -> None:
        lock, behind = harness.lock(name), harness.client().lock(name)
        lease = await harness.must_acquire(lock)
        dead = await _queue(harness, lock, 1)
        other = harness.spawn(_when, harness, behind)
        await harness.wait_for_waiters(lock, 2)
        dead.freeze()
        await lease.release()
        killed = harness.now()
        await kill(harness, dead)
        await _expect_within(harness, await other.join() - killed)

    await harness.retry_if_slow(3, attempt)


@scenario("has_queue", "multiprocess")
async def frozen_waiter_delays_others_for_a_bounded_time(harness: Harness) -> None:
    """It is skipped after the confirmation time, and holds nothing when it resumes."""

    async def attempt(name: str) -> None:
        lock, behind = harness.lock(name), harness.client().lock(name)
        lease = await harness.must_acquire(lock)
        frozen = await _queue(harness, lock, 1)
        frozen.freeze()
        await lease.release()
        released = harness.now()
        other = await harness.must_acquire(behind)
        passed = harness.now() - released
        frozen.resume()
        await harness.wait_for_waiters(lock, 1)
        assert "holds" not in frozen.words
        other.ensure()
        await other.release()
        await frozen.wait_for_word("holds")
        harness.check_duration(passed, harness.store.confirm_within + GRACE)

    await harness.retry_if_slow(3, attempt)


async def _queue(harness: Harness, lock: Lock, place: int) -> Child:
    child = harness.process(keep, lock.name)
    await harness.wait_for_waiters(lock, place)
    return child


async def kill(harness: Harness, child: Child) -> None:
    """Kill a process, and wait for its end."""
    child.kill()
    await harness.wait_until(child.ended)


async def _when(harness: Harness, lock: Lock) -> float:
    async with lock:
        return harness.now()


async def _expect_within(harness: Harness, passed: float) -> None:
    harness.check_duration(
        passed, AT_ONCE if harness.store.detects_death else harness.store.confirm_within + GRACE
    )
