"""Who holds a lock may take it again, and it is free when each acquire has its release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaselockError, NotHeld
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.world import World


@scenario()
async def each_acquire_has_its_release(world: World) -> None:
    """Three deep, it is free after the third release and not before."""
    lock, rival = world.lock("a"), world.client().lock("a")
    leases = [await world.take(lock, 0) for _ in range(3)]
    assert len({lease.token for lease in leases}) == 1
    for _ in leases:
        assert lock.owned()
        assert await rival.acquire(timeout=0) is None
        await lock.release()
    assert not lock.owned()
    with raising(NotHeld):
        await lock.release()
    await (await world.take(rival, 0)).release()


@scenario()
async def leases_are_released_in_any_order(world: World) -> None:
    """The outer one first: the inner one goes on holding."""
    lock, rival = world.lock("a"), world.client().lock("a")
    outer = await world.take(lock)
    inner = await world.take(lock)
    await outer.release()
    with raising(NotHeld):
        outer.ensure()
    inner.ensure()
    assert await rival.acquire(timeout=0) is None
    await inner.release()
    await (await world.take(rival, 0)).release()


@scenario()
async def bodies_nest(world: World) -> None:
    """A body under the lock may call what takes the lock, by another lock object, too."""
    rival = world.client().lock("a")
    async with world.lock("a") as outer:
        async with world.lock("a") as inner:
            assert inner.token == outer.token
        assert await rival.acquire(timeout=0) is None
        outer.ensure()
    await (await world.take(rival, 0)).release()


@scenario()
async def another_holder_does_not_nest(world: World) -> None:
    """Reentrancy is for the thread or task that holds, not for what it starts."""
    lock = world.lock("a")
    async with lock:
        assert not await world.spawn(_owned, lock.owned).join()
        assert await world.spawn(lock.acquire, 0.02).join() is None


async def _owned(owned: object) -> bool:
    assert callable(owned)
    return bool(owned())


@scenario()
async def not_reentrant_is_an_error_and_no_hang(world: World) -> None:
    """With reentrant=False, waiting for oneself is refused at once, and what is held stays."""
    strict = world.lock("a", reentrant=False)
    lease = await world.take(strict)
    with raising(LeaselockError, "a", "reentrant=False"):
        await strict.acquire()
    with raising(LeaselockError, "reentrant=False"):
        async with strict:
            raise AssertionError("entered twice")
    lease.ensure()
    await lease.release()
    assert not await strict.locked()


@scenario()
async def a_nested_acquire_with_a_longer_lease_makes_it_longer(world: World) -> None:
    """Both share one hold, which then is good for the longer time, after the next renewal."""
    async with world.lock("a", lease=0.6) as outer, world.lock("a", lease=20.0):
        await world.until(lambda: outer.remaining > min(10.0, world.store.session / 8))
