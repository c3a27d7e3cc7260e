"""Waiters are served first come, first served, and those who cannot take their turn lose it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.conformance.child import Child, hear, say
from leaselock.testing.conformance.scenario import scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World

# How soon a lock passes on when the store knows at once that a process is dead.
AT_ONCE = 1.0
# What a busy machine may add to a bound that the store's clock keeps.
GRACE = 1.0


@scenario("queue", "fair")
async def waiters_are_served_in_order(world: World) -> None:
    """In the order in which they came, whichever client they belong to."""
    served: list[int] = []
    lock, clients = world.lock("a"), (world.client(), world.client())
    async with lock:
        others = []
        for number in range(8):
            waiting = clients[number % 2].lock("a")
            others.append(world.spawn(_be_served, waiting, served, number))
            await world.until_waiting(lock, number + 1)
    for other in others:
        await other.join()
    assert served == list(range(8))


async def _be_served(lock: Lock, served: list[int], number: int) -> None:
    async with lock:
        served.append(number)


@scenario("queue", "fair")
async def who_asks_again_does_not_overtake(world: World) -> None:
    """A release hands over to the waiter, however quickly the releaser comes back."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    lease = await world.take(lock)
    served: list[int] = []
    other = world.spawn(_be_served, waiting, served, 1)
    await world.until_waiting(lock, 1)
    await lease.release()
    async with lock:
        assert served == [1]
    await other.join()


async def keep(world: World, name: str) -> None:
    """In a process: wait for the lock, and hold it until told."""
    async with world.lock(name, lease=world.store.lease if not world.store.life else 30.0):
        say("holds")
        await hear(world, "end")


@scenario("queue", "processes")
async def a_dead_waiter_is_passed_over(world: World) -> None:
    """A process that is killed in mid-queue delays nobody behind it."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.take(lock)
        dead = await _queue(world, lock, 1)
        other = world.spawn(_when, world, behind)
        await world.until_waiting(lock, 2)
        await kill(world, dead)
        released = world.now()
        await lease.release()
        await _expect_within(world, await other.join() - released)

    await world.best_of(3, attempt)


@scenario("queue", "processes")
async def one_that_dies_in_its_turn_is_passed_over(world: World) -> None:
    """The lock was handed to a process that could not take it any more."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.take(lock)
        dead = await _queue(world, lock, 1)
        other = world.spawn(_when, world, behind)
        await world.until_waiting(lock, 2)
        dead.freeze()
        await lease.release()
        killed = world.now()
        await kill(world, dead)
        await _expect_within(world, await other.join() - killed)

    await world.best_of(3, attempt)


@scenario("queue", "processes")
async def a_frozen_waiter_delays_no_longer_than_its_claim(world: World) -> None:
    """It is passed over after the claim time, and when it moves again it holds nothing."""

    async def attempt(name: str) -> None:
        lock, behind = world.lock(name), world.client().lock(name)
        lease = await world.take(lock)
        frozen = await _queue(world, lock, 1)
        frozen.freeze()
        await lease.release()
        released = world.now()
        other = await world.take(behind)
        passed = world.now() - released
        frozen.thaw()
        await world.until_waiting(lock, 1)
        assert "holds" not in frozen.words
        other.ensure()
        await other.release()
        await frozen.says("holds")
        world.bounded(passed, world.store.claim_time + GRACE)

    await world.best_of(3, attempt)


async def _queue(world: World, lock: Lock, place: int) -> Child:
    child = world.process(keep, lock.name)
    await world.until_waiting(lock, place)
    return child


async def kill(world: World, child: Child) -> None:
    """Kill a process; it is gone when this returns."""
    child.kill()
    await world.until(child.gone)


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()


async def _expect_within(world: World, passed: float) -> None:
    world.bounded(passed, AT_ONCE if world.store.life else world.store.claim_time + GRACE)
