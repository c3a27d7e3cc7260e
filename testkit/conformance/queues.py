"""Waiters are served first come, first served; dead and frozen ones are skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.conformance.child_process import Child, send_to_parent, wait_for_word
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.world import World

# Seconds until the next grant, if the store detects the death of a process at once.
AT_ONCE = 1.0
# Seconds that a busy machine may add to a bound of the store.
GRACE = 1.0
# A lease that ends in no scenario.
LONG = 30.0


@scenario("has_queue", "fair")
async def waiters_are_served_in_order(world: World) -> None:
    """In order of arrival, whichever client they belong to."""
    served: list[int] = []
    lock, clients = world.lock("a"), (world.client(), world.client())
    async with lock:
        others = []
        for number in range(8):
            waiting = clients[number % 2].lock("a")
            others.append(world.spawn(_be_served, waiting, served, number))
            await world.wait_for_waiters(lock, number + 1)
    for other in others:
        await other.join()
    assert served == list(range(8))


async def _be_served(lock: Lock, served: list[int], number: int) -> None:
    async with lock:
        served.append(number)


@scenario("has_queue", "fair")
async def releaser_does_not_overtake_the_waiter(world: World) -> None:
    """A release grants the lock to the waiter, even if its releaser acquires again at once."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    lease = await world.must_acquire(lock)
    served: list[int] = []
    other = world.spawn(_be_served, waiting, served, 1)
    await world.wait_for_waiters(lock, 1)
    await lease.release()
    async with lock:
        assert served == [1]
    await other.join()


async def keep(world: World, name: str, length: float = 0.0) -> None:
    """In a process: wait for the lock, and hold it until the request to end."""
    shortest = LONG if world.store.detects_death else world.store.lease
    async with world.lock(name, lease=max(length, shortest)):
        send_to_parent("holds")
        await wait_for_word(world, "end")


@scenario("has_queue", "multiprocess")
async def dead_waiter_is_skipped(world: World) -> None:
    """A process killed in the queue delays no later waiter."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.must_acquire(lock)
        dead = await _queue(world, lock, 1)
        other = world.spawn(_when, world, behind)
        await world.wait_for_waiters(lock, 2)
        await kill(world, dead)
        released = world.now()
        await lease.release()
        await _expect_within(world, await other.join() - released)

    await world.retry_if_slow(3, attempt)


@scenario("has_queue", "multiprocess")
async def waiter_that_dies_after_its_grant_is_skipped(world: World) -> None:
    """The lock was granted to a process that died before it confirmed the grant."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.must_acquire(lock)
        dead = await _queue(world, lock, 1)
        other = world.spawn(_when, world, behind)
        await world.wait_for_waiters(lock, 2)
        dead.freeze()
        await lease.release()
        killed = world.now()
        await kill(world, dead)
        await _expect_within(world, await other.join() - killed)

    await world.retry_if_slow(3, attempt)


@scenario("has_queue", "multiprocess")
async def frozen_waiter_delays_others_for_a_bounded_time(world: World) -> None:
    """It is skipped after the confirmation time, and holds nothing when it resumes."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.must_acquire(lock)
        frozen = await _queue(world, lock, 1)
        frozen.freeze()
        await lease.release()
        released = world.now()
        other = await world.must_acquire(behind)
        passed = world.now() - released
        frozen.resume()
        await world.wait_for_waiters(lock, 1)
        assert "holds" not in frozen.words
        other.ensure()
        await other.release()
        await frozen.wait_for_word("holds")
        world.check_duration(passed, world.store.confirm_within + GRACE)

    await world.retry_if_slow(3, attempt)


async def _queue(world: World, lock: Lock, place: int) -> Child:
    child = world.process(keep, lock.name)
    await world.wait_for_waiters(lock, place)
    return child


async def kill(world: World, child: Child) -> None:
    """Kill a process, and wait for its end."""
    child.kill()
    await world.wait_until(child.ended)


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()


async def _expect_within(world: World, passed: float) -> None:
    world.check_duration(
        passed, AT_ONCE if world.store.detects_death else world.store.confirm_within + GRACE
    )
