"""A lease ends by itself unless it is renewed, and its holder is the first to know."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.harness import NotInTime
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease, Lock
    from testkit.conformance.harness import Harness


@scenario("leases_expire")
async def fixed_lease_expires(harness: Harness) -> None:
    """With renew=False, the loss is reported, and only then another client acquires the lock."""
    lock, rival = (
        harness.lock("a", lease=harness.store.lease, renew=False),
        harness.client().lock("a"),
    )
    lease = await harness.must_acquire(lock)
    assert lease.remaining <= harness.store.lease
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    other = await harness.must_acquire(rival)
    assert lease.lost
    assert (lease.remaining, lock.owned()) == (0.0, False)
    assert other.token > lease.token
    with raising(LeaseLost, "a", str(lease.token)):
        lease.ensure()
    await harness.wait_until(lambda: reported == [lease])
    with raising(LeaseLost, "a"):
        await lease.release()
    other.ensure()
    await other.release()


@scenario("leases_expire")
async def end_of_a_lease_wakes_the_waiter(harness: Harness) -> None:
    """A waiter is granted the lock soon after the lease has ended."""

    async def attempt(name: str) -> None:
        length = harness.store.lease
        await harness.must_acquire(harness.lock(name, lease=length, renew=False))
        began = harness.now()
        lease = await harness.must_acquire(harness.client().lock(name))
        harness.check_elapsed(began, length + 0.5)
        await lease.release()

    await harness.retry_if_slow(5, attempt)


@scenario()
async def renewed_lease_lasts(harness: Harness) -> None:
    """Held for five times its length, the lock is not granted to another client."""

    async def attempt(name: str) -> None:
        lease = await harness.must_acquire(harness.lock(name, lease=harness.store.lease))
        await _keep_out(harness, lease, harness.client().lock(name), 5 * harness.store.lease)
        await lease.release()

    await harness.retry_if_slow(5, attempt)


async def _keep_out(harness: Harness, lease: Lease, rival: Lock, seconds: float) -> None:
    ended = harness.now() + seconds
    while harness.now() < ended:
        got = await harness.try_once(rival, 0.1)
        if lease.lost:
            # This process was suspended for longer than the lease, so it was not renewed.
            raise NotInTime("the lease could not be renewed in time")
        assert got is None, "another client acquired the lock while the lease was valid"


@scenario()
async def many_leases_are_renewed(harness: Harness) -> None:
    """A client renews all of its leases, each by its own length."""

    async def attempt(name: str) -> None:
        length = harness.store.lease
        leases = [
            await harness.must_acquire(harness.lock(f"{name} {n}", lease=length * (1 + n % 3)))
            for n in range(30)
        ]
        ended = harness.now() + 4 * length
        await harness.wait_until(lambda: harness.now() >= ended)
        if any(lease.lost for lease in leases):
            raise NotInTime("some lease could not be renewed in time")
        for lease in leases:
            await lease.release()

    await harness.retry_if_slow(5, attempt)


@scenario("leases_expire")
async def extended_lease_ends_later(harness: Harness) -> None:
    """A fixed lease can be extended beyond its length, and is never shortened."""

    async def attempt(name: str) -> None:
        length = harness.store.lease
        lease = await harness.must_acquire(harness.lock(name, lease=length, renew=False))
        try:
            await lease.extend(20.0)
        except LeaseLost:
            raise NotInTime("it expired before it was extended") from None
        valid = min(15.0, harness.store.session_timeout / 8)
        assert valid < lease.remaining <= 20.0
        await lease.extend(1.0)
        assert lease.remaining > valid
        await _keep_out(harness, lease, harness.client().lock(name), 2 * length)
        await lease.release()

    await harness.retry_if_slow(5, attempt)


@scenario("leases_expire")
async def lost_lease_cannot_be_extended(harness: Harness) -> None:
    """LeaseLost is raised, and the new holder keeps the lock."""
    lock = harness.lock("a", lease=harness.store.lease, renew=False)
    lease = await harness.must_acquire(lock)
    other = await harness.must_acquire(harness.client().lock("a"))
    with raising(LeaseLost, "a"):
        await lease.extend(20.0)
    other.ensure()


@scenario("leases_expire")
async def unreferenced_lease_expires(harness: Harness) -> None:
    """A lease without references is not renewed."""
    held = await _take_and_forget(harness, harness.store.lease)
    gc.collect()
    lease = await harness.must_acquire(harness.client().lock("a"))
    assert lease.token > held
    await lease.release()


async def _take_and_forget(harness: Harness, length: float) -> int:
    lease = await harness.must_acquire(harness.lock("a", lease=length))
    lease.on_lost(lambda lost: None)
    return lease.token


@scenario()
async def referenced_lock_keeps_its_lease(harness: Harness) -> None:
    """A reference to the lock object is enough to keep its lease renewed."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name, lease=harness.store.lease)
        rival = harness.client().lock(name)
        await lock.acquire()
        gc.collect()
        ended = harness.now() + 3 * harness.store.lease
        while harness.now() < ended:
            got = await harness.try_once(rival, 0.1)
            if not lock.owned():
                raise NotInTime("the lease could not be renewed in time")
            assert got is None
        await lock.release()

    await harness.retry_if_slow(5, attempt)
