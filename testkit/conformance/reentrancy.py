"""A lock is reentrant: it is free when each acquire has had its release."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from leaselock.errors import LeaselockError, NotHeld
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness


@scenario()
async def each_acquire_needs_a_release(harness: Harness) -> None:
    """Acquired three times, the lock is free after the third release and not before."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    leases = [await harness.must_acquire(lock, 0) for _ in range(3)]
    assert len({lease.token for lease in leases}) == 1
    for _ in leases:
        assert lock.owned()
        assert await harness.try_once(rival) is None
        await lock.release()
    assert not lock.owned()
    with raising(NotHeld):
        await lock.release()
    await (await harness.must_acquire(rival, 0)).release()


@scenario()
async def leases_may_be_released_in_any_order(harness: Harness) -> None:
    """After the outer lease is released, the inner one still holds the lock."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    outer = await harness.must_acquire(lock)
    inner = await harness.must_acquire(lock)
    await outer.release()
    with raising(NotHeld):
        outer.ensure()
    inner.ensure()
    assert await harness.try_once(rival) is None
    await inner.release()
    await (await harness.must_acquire(rival, 0)).release()


@scenario()
async def bodies_nest(harness: Harness) -> None:
    """A body may acquire the lock again, by another lock object, too."""
    rival = harness.client().lock("a")
    async with harness.lock("a") as outer:
        async with harness.lock("a") as inner:
            assert inner.token == outer.token
        assert await harness.try_once(rival) is None
        outer.ensure()
    await (await harness.must_acquire(rival, 0)).release()


@scenario()
async def other_owners_do_not_nest(harness: Harness) -> None:
    """Reentrancy applies to the owner, not to threads or tasks that it starts."""
    lock = harness.lock("a")
    async with lock:
        assert not await harness.spawn(_owned, lock.owned).join()
        assert await harness.spawn(partial(lock.try_acquire, timeout=0.02)).join() is None


async def _owned(owned: object) -> bool:
    assert callable(owned)
    return bool(owned())


@scenario()
async def release_by_another_object_of_the_name_is_refused(harness: Harness) -> None:
    """The owner holds the lock. The error says what releases it."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)
    with raising(NotHeld, "'a'", "another one", "release it by its lease or by that object"):
        await harness.lock("a").release()
    lease.ensure()
    await lock.release()
    with raising(NotHeld, "does not hold it"):
        await harness.lock("a").release()


@scenario()
async def non_reentrant_lock_raises_an_error(harness: Harness) -> None:
    """With reentrant=False a second acquire fails at once, and the hold stays."""
    strict = harness.lock("a", reentrant=False)
    lease = await harness.must_acquire(strict)
    with raising(LeaselockError, "a", "reentrant=False"):
        await strict.acquire()
    with raising(LeaselockError, "reentrant=False"):
        async with strict:
            raise AssertionError("entered twice")
    lease.ensure()
    await lease.release()
    assert not await strict.locked()


@scenario()
async def nested_acquire_with_a_longer_lease_extends_the_hold(harness: Harness) -> None:
    """Both leases share one hold, which has the longer length after the next renewal."""
    async with harness.lock("a", lease=0.6) as outer, harness.lock("a", lease=20.0):
        await harness.wait_until(
            lambda: outer.remaining > min(10.0, harness.store.session_timeout / 8)
        )
