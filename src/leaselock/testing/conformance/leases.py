"""A lease ends by itself unless it is renewed, and its holder knows it first."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from leaselock.testing.conformance.scenario import raising, scenario
from leaselock.testing.conformance.world import Late

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lease, Lock
    from leaselock.testing.conformance.world import World


@scenario("expiry")
async def a_fixed_lease_runs_out(world: World) -> None:
    """With renew=False: it is lost, everybody is told, and only then another gets in."""
    lock, rival = world.lock("a", lease=world.store.lease, renew=False), world.client().lock("a")
    lease = await world.take(lock)
    assert 0.0 < lease.remaining <= world.store.lease
    told: list[Lease] = []
    lease.on_lost(told.append)
    other = await world.take(rival)
    assert lease.lost
    assert (lease.remaining, lock.owned()) == (0.0, False)
    assert other.token > lease.token
    with raising(LeaseLost, "a", str(lease.token)):
        lease.ensure()
    await world.until(lambda: told == [lease])
    with raising(LeaseLost, "a"):
        await lease.release()
    other.ensure()
    await other.release()


@scenario("expiry")
async def the_end_of_a_lease_wakes_the_waiters(world: World) -> None:
    """One who waits gets in when the lease is over, not much later."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        await world.take(world.lock(name, lease=length, renew=False))
        began = world.now()
        lease = await world.take(world.client().lock(name))
        world.punctual(began, length + 0.5)
        await lease.release()

    await world.best_of(5, attempt)


@scenario()
async def a_renewed_lease_lasts(world: World) -> None:
    """Held for five times its length, it lets nobody in."""

    async def attempt(name: str) -> None:
        lease = await world.take(world.lock(name, lease=world.store.lease))
        await _keep_out(world, lease, world.client().lock(name), 5 * world.store.lease)
        await lease.release()

    await world.best_of(5, attempt)


async def _keep_out(world: World, lease: Lease, rival: Lock, seconds: float) -> None:
    ended = world.now() + seconds
    while world.now() < ended:
        got = await rival.acquire(timeout=0.1)
        if lease.lost:
            # This whole process stood still for longer than the lease: nobody could renew.
            raise Late("the lease could not be renewed in time")
        assert got is None, "another got in while the lease was believed"


@scenario()
async def many_leases_are_renewed_together(world: World) -> None:
    """A client renews all of its locks, each by its own lease."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        leases = [
            await world.take(world.lock(f"{name} {n}", lease=length * (1 + n % 3)))
            for n in range(30)
        ]
        ended = world.now() + 4 * length
        await world.until(lambda: world.now() >= ended)
        if any(lease.lost for lease in leases):
            raise Late("some lease could not be renewed in time")
        for lease in leases:
            await lease.release()

    await world.best_of(5, attempt)


@scenario("expiry")
async def an_extended_lease_ends_later(world: World) -> None:
    """A fixed lease that is extended outlives its length; none is made shorter."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        lease = await world.take(world.lock(name, lease=length, renew=False))
        try:
            await lease.extend(20.0)
        except LeaseLost:
            raise Late("it ran out before it was extended") from None
        believed = min(15.0, world.store.session / 8)
        assert believed < lease.remaining <= 20.0
        await lease.extend(1.0)
        assert lease.remaining > believed
        await _keep_out(world, lease, world.client().lock(name), 2 * length)
        await lease.release()

    await world.best_of(5, attempt)


@scenario("expiry")
async def a_lost_lease_cannot_be_extended(world: World) -> None:
    """LeaseLost, and the lock stays another's."""
    lock = world.lock("a", lease=world.store.lease, renew=False)
    lease = await world.take(lock)
    other = await world.take(world.client().lock("a"))
    with raising(LeaseLost, "a"):
        await lease.extend(20.0)
    other.ensure()


@scenario("expiry")
async def an_abandoned_lease_runs_out(world: World) -> None:
    """What nobody has in hand any more is not renewed."""
    held = await _take_and_forget(world, world.store.lease)
    gc.collect()
    lease = await world.take(world.client().lock("a"))
    assert lease.token > held
    await lease.release()


async def _take_and_forget(world: World, length: float) -> int:
    lease = await world.take(world.lock("a", lease=length))
    lease.on_lost(lambda lost: None)
    return lease.token


@scenario()
async def the_lock_object_in_hand_keeps_the_lease(world: World) -> None:
    """Who acquires and releases by the lock need not keep the lease."""

    async def attempt(name: str) -> None:
        lock = world.lock(name, lease=world.store.lease)
        rival = world.client().lock(name)
        await lock.acquire()
        gc.collect()
        ended = world.now() + 3 * world.store.lease
        while world.now() < ended:
            got = await rival.acquire(timeout=0.1)
            if not lock.owned():
                raise Late("the lease could not be renewed in time")
            assert got is None
        await lock.release()

    await world.best_of(5, attempt)
