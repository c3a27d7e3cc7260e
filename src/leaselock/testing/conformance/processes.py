"""A holder that dies or stops is followed by the next; what stopped learns that it has lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from leaselock.testing.conformance.child import hear, say
from leaselock.testing.conformance.queues import AT_ONCE, GRACE, keep, kill
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World


@scenario("queue", "processes")
async def a_dead_holder_is_followed(world: World) -> None:
    """The lock of a killed process passes on: at once, or at the end of its lease."""

    async def attempt(name: str) -> None:
        lock = world.lock(name)
        dead = world.process(keep, name)
        await dead.says("holds")
        waiting = [world.spawn(_when, world, lock) for _ in range(2)]
        await world.until_waiting(lock, 2)
        killed = world.now()
        await kill(world, dead)
        first = min([await other.join() for other in waiting])
        world.bounded(first - killed, AT_ONCE if world.store.life else world.store.outlived + GRACE)

    await world.best_of(3, attempt)


@scenario("processes", "life")
async def nobody_is_needed_to_notice_a_death(world: World) -> None:
    """A lock that nobody waited for when its holder was killed is free to the next who asks."""
    lock = world.lock("a")
    dead = world.process(keep, "a")
    await dead.says("holds")
    assert await lock.acquire(timeout=0) is None
    await kill(world, dead)
    # A server on a busy machine has yet to hear of it.
    await (await world.take(lock, 0.1 * world.store.slow)).release()


@scenario("expiry", "processes")
async def a_frozen_holder_learns_that_it_has_lost(world: World) -> None:
    """Stopped for longer than its lease, it does not believe its lease when it goes on."""
    lock = world.lock("a")
    frozen = world.process(look_when_told, "a", max(1.0, world.store.lease))
    await frozen.says("holds")
    frozen.freeze()
    lease = await world.take(lock)
    frozen.tell("look")
    frozen.thaw()
    await frozen.says("lost")
    await frozen.end()
    lease.ensure()
    await lease.release()


async def look_when_told(world: World, name: str, length: float) -> None:
    """In a process: hold the lock, and say later whether that is believed."""
    lease = await world.take(world.lock(name, lease=length))
    say("holds")
    await hear(world, "look")
    say("lost" if lease.lost else "believes")
    with raising(LeaseLost, name):
        await lease.release()


@scenario("processes")
async def a_stopped_process_loses_nothing_within_its_lease(world: World) -> None:
    """A pause that is shorter than the lease is no loss."""
    lock = world.lock("a")
    paused = world.process(keep, "a")
    await paused.says("holds")
    if world.store.life:
        paused.freeze()
        assert await lock.acquire(timeout=0.2) is None
        paused.thaw()
    assert await lock.acquire(timeout=0) is None
    paused.tell("end")
    await paused.end()
    await (await world.take(lock)).release()


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()
