"""A lease ends by itself unless it is renewed, and its holder is the first to know."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.scenario import raising, scenario
from testkit.conformance.world import NotInTime

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease, Lock
    from testkit.conformance.world import World


@scenario("leases_expire")
async def fixed_lease_expires(world: World) -> None:
    """With renew=False, the loss is reported, and only then another client acquires the lock."""
    lock, rival = world.lock("a", lease=world.store.lease, renew=False), world.client().lock("a")
    lease = await world.must_acquire(lock)
    assert lease.remaining <= world.store.lease
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    other = await world.must_acquire(rival)
    assert lease.lost
    assert (lease.remaining, lock.owned()) == (0.0, False)
    assert other.token > lease.token
    with raising(LeaseLost, "a", str(lease.token)):
        lease.ensure()
    await world.wait_until(lambda: reported == [lease])
    with raising(LeaseLost, "a"):
        await lease.release()
    other.ensure()
    await other.release()


@scenario("leases_expire")
async def end_of_a_lease_wakes_the_waiter(world: World) -> None:
    """A waiter is granted the lock soon after the lease has ended."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        await world.must_acquire(world.lock(name, lease=length, renew=False))
        began = world.now()
        lease = await world.must_acquire(world.client().lock(name))
        world.check_elapsed(began, length + 0.5)
        await lease.release()

    await world.retry_if_slow(5, attempt)


@scenario()
async def renewed_lease_lasts(world: World) -> None:
    """Held for five times its length, the lock is not granted to another client."""

    async def attempt(name: str) -> None:
        lease = await world.must_acquire(world.lock(name, lease=world.store.lease))
        await _keep_out(world, lease, world.client().lock(name), 5 * world.store.lease)
        await lease.release()

    await world.retry_if_slow(5, attempt)


async def _keep_out(world: World, lease: Lease, rival: Lock, seconds: float) -> None:
    ended = world.now() + seconds
    while world.now() < ended:
        got = await world.try_once(rival, 0.1)
        if lease.lost:
            # This process was suspended for longer than the lease, so it was not renewed.
            raise NotInTime("the lease could not be renewed in time")
        assert got is None, "another client acquired the lock while the lease was valid"


@scenario()
async def many_leases_are_renewed(world: World) -> None:
    """A client renews all of its leases, each by its own length."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        leases = [
            await world.must_acquire(world.lock(f"{name} {n}", lease=length * (1 + n % 3)))
            for n in range(30)
        ]
        ended = world.now() + 4 * length
        await world.wait_until(lambda: world.now() >= ended)
        if any(lease.lost for lease in leases):
            raise NotInTime("some lease could not be renewed in time")
        for lease in leases:
            await lease.release()

    await world.retry_if_slow(5, attempt)


@scenario("leases_expire")
async def extended_lease_ends_later(world: World) -> None:
    """A fixed lease can be extended beyond its length, and is never shortened."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        lease = await world.must_acquire(world.lock(name, lease=length, renew=False))
        try:
            await lease.extend(20.0)
        except LeaseLost:
            raise NotInTime("it expired before it was extended") from None
        valid = min(15.0, world.store.session_timeout / 8)
        assert valid < lease.remaining <= 20.0
        await lease.extend(1.0)
        assert lease.remaining > valid
        await _keep_out(world, lease, world.client().lock(name), 2 * length)
        await lease.release()

    await world.retry_if_slow(5, attempt)


@scenario("leases_expire")
async def lost_lease_cannot_be_extended(world: World) -> None:
    """LeaseLost is raised, and the new holder keeps the lock."""
    lock = world.lock("a", lease=world.store.lease, renew=False)
    lease = await world.must_acquire(lock)
    other = await world.must_acquire(world.client().lock("a"))
    with raising(LeaseLost, "a"):
        await lease.extend(20.0)
    other.ensure()


@scenario("leases_expire")
async def unreferenced_lease_expires(world: World) -> None:
    """A lease without references is not renewed."""
    held = await _take_and_forget(world, world.store.lease)
    gc.collect()
    lease = await world.must_acquire(world.client().lock("a"))
    assert lease.token > held
    await lease.release()


async def _take_and_forget(world: World, length: float) -> int:
    lease = await world.must_acquire(world.lock("a", lease=length))
    lease.on_lost(lambda lost: None)
    return lease.token


@scenario()
async def referenced_lock_keeps_its_lease(world: World) -> None:
    """A reference to the lock object is enough to keep its lease renewed."""

    async def attempt(name: str) -> None:
        lock = world.lock(name, lease=world.store.lease)
        rival = world.client().lock(name)
        await lock.acquire()
        gc.collect()
        ended = world.now() + 3 * world.store.lease
        while world.now() < ended:
            got = await world.try_once(rival, 0.1)
            if not lock.owned():
                raise NotInTime("the lease could not be renewed in time")
            assert got is None
        await lock.release()

    await world.retry_if_slow(5, attempt)
