"""The lock of a dead or frozen holder is granted to another; a frozen holder learns of its loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.child_process import send_to_parent, wait_for_word
from testkit.conformance.queues import AT_ONCE, GRACE, LONG, keep, kill
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.world import World


@scenario("has_queue", "multiprocess")
async def lock_of_a_killed_holder_is_granted_to_a_waiter(world: World) -> None:
    """At once, or at the end of its lease."""

    async def attempt(name: str) -> None:
        lock = world.lock(name)
        dead = world.process(keep, name)
        await dead.wait_for_word("holds")
        waiting = [world.spawn(_when, world, lock) for _ in range(2)]
        await world.wait_for_waiters(lock, 2)
        killed = world.now()
        await kill(world, dead)
        first = min([await other.join() for other in waiting])
        world.check_duration(
            first - killed,
            AT_ONCE if world.store.detects_death else world.store.death_bound + GRACE,
        )

    await world.retry_if_slow(3, attempt)


@scenario("multiprocess", "detects_death")
async def lock_of_a_killed_holder_is_free_without_waiters(world: World) -> None:
    """A lock without waiters is free soon after its holder was killed."""

    async def attempt(name: str) -> None:
        lock = world.lock(name)
        dead = world.process(keep, name)
        await dead.wait_for_word("holds")
        assert await world.try_once(lock) is None
        await kill(world, dead)
        killed = world.now()
        await (await world.must_acquire(lock)).release()
        world.check_elapsed(killed, AT_ONCE)

    await world.retry_if_slow(3, attempt)


@scenario("leases_expire", "multiprocess")
async def frozen_holder_learns_of_its_loss(world: World) -> None:
    """Stopped for longer than its lease, a holder finds its lease lost when it resumes."""
    lock = world.lock("a")
    frozen = world.process(report_loss_when_asked, "a", world.store.lease)
    await frozen.wait_for_word("holds")
    frozen.freeze()
    lease = await world.must_acquire(lock)
    frozen.send("look")
    frozen.resume()
    await frozen.wait_for_word("lost")
    await frozen.end()
    lease.ensure()
    await lease.release()


async def report_loss_when_asked(world: World, name: str, length: float) -> None:
    """In a process: hold the lock, and later send whether the lease is still valid."""
    lease = await world.must_acquire(world.lock(name, lease=length))
    send_to_parent("holds")
    await wait_for_word(world, "look")
    send_to_parent("lost" if lease.lost else "valid")
    with raising(LeaseLost, name):
        await lease.release()


@scenario("multiprocess")
async def short_stop_loses_nothing(world: World) -> None:
    """A stop shorter than the lease is no loss."""
    lock = world.lock("a")
    paused = world.process(keep, "a", LONG)
    await paused.wait_for_word("holds")
    if world.store.detects_death:
        paused.freeze()
        assert await world.try_once(lock, 0.2) is None
        paused.resume()
    assert await world.try_once(lock) is None
    paused.send("end")
    await paused.end()
    await (await world.must_acquire(lock)).release()


async def _when(world: World, lock: Lock) -> float:
    async with lock:
        return world.now()
