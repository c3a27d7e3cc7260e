"""A lock is reentrant: it is free when each acquire has had its release."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leaselock.errors import LeaselockError, NotHeld
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.world import World


@scenario()
async def each_acquire_needs_a_release(world: World) -> None:
    """Acquired three times, the lock is free after the third release and not before."""
    lock, rival = world.lock("a"), world.client().lock("a")
    leases = [await world.must_acquire(lock, 0) for _ in range(3)]
    assert len({lease.token for lease in leases}) == 1
    for _ in leases:
        assert lock.owned()
        assert await world.try_once(rival) is None
        await lock.release()
    assert not lock.owned()
    with raising(NotHeld):
        await lock.release()
    await (await world.must_acquire(rival, 0)).release()


@scenario()
async def leases_may_be_released_in_any_order(world: World) -> None:
    """After the outer lease is released, the inner one still holds the lock."""
    lock, rival = world.lock("a"), world.client().lock("a")
    outer = await world.must_acquire(lock)
    inner = await world.must_acquire(lock)
    await outer.release()
    with raising(NotHeld):
        outer.ensure()
    inner.ensure()
    assert await world.try_once(rival) is None
    await inner.release()
    await (await world.must_acquire(rival, 0)).release()


@scenario()
async def bodies_nest(world: World) -> None:
    """A body may acquire the lock again, by another lock object, too."""
    rival = world.client().lock("a")
    async with world.lock("a") as outer:
        async with world.lock("a") as inner:
            assert inner.token == outer.token
        assert await world.try_once(rival) is None
        outer.ensure()
    await (await world.must_acquire(rival, 0)).release()


@scenario()
async def other_owners_do_not_nest(world: World) -> None:
    """Reentrancy applies to the owner, not to threads or tasks that it starts."""
    lock = world.lock("a")
    async with lock:
        assert not await world.spawn(_owned, lock.owned).join()
        assert await world.spawn(partial(lock.try_acquire, timeout=0.02)).join() is None


async def _owned(owned: object) -> bool:
    assert callable(owned)
    return bool(owned())


@scenario()
async def release_by_another_object_of_the_name_is_refused(world: World) -> None:
    """The owner holds the lock. The error says what releases it."""
    lock = world.lock("a")
    lease = await world.must_acquire(lock)
    with raising(NotHeld, "'a'", "another one", "release it by its lease or by that object"):
        await world.lock("a").release()
    lease.ensure()
    await lock.release()
    with raising(NotHeld, "does not hold it"):
        await world.lock("a").release()


@scenario()
async def non_reentrant_lock_raises_an_error(world: World) -> None:
    """With reentrant=False a second acquire fails at once, and the hold stays."""
    strict = world.lock("a", reentrant=False)
    lease = await world.must_acquire(strict)
    with raising(LeaselockError, "a", "reentrant=False"):
        await strict.acquire()
    with raising(LeaselockError, "reentrant=False"):
        async with strict:
            raise AssertionError("entered twice")
    lease.ensure()
    await lease.release()
    assert not await strict.locked()


@scenario()
async def nested_acquire_with_a_longer_lease_extends_the_hold(world: World) -> None:
    """Both leases share one hold, which has the longer length after the next renewal."""
    async with world.lock("a", lease=0.6) as outer, world.lock("a", lease=20.0):
        await world.wait_until(lambda: outer.remaining > min(10.0, world.store.session_timeout / 8))
