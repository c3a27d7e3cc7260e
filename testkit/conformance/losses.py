"""A loss is reported to the holder: by the lease, by callbacks, and at the end of the body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease
    from testkit.conformance.harness import Harness


class Own(Exception):
    """An exception raised by a body."""


@scenario()
async def broken_lock_is_reported_at_the_next_renewal(harness: Harness) -> None:
    """The callback, `lost`, `ensure` and the release report it long before the lease ends."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name, lease=1.5)
        lease = await harness.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        broken = harness.now()
        await harness.client().break_lock(name)
        await harness.wait_until(lambda: lease.lost)
        passed = harness.now() - broken
        with raising(LeaseLost, name, str(lease.token)):
            lease.ensure()
        assert (lease.remaining, lock.owned()) == (0.0, False)
        await harness.wait_until(lambda: bool(reported))
        with raising(LeaseLost, name):
            await lease.release()
        assert reported == [lease]
        harness.check_duration(passed, 1.0)

    await harness.retry_if_slow(3, attempt)


@scenario()
async def callback_added_after_the_loss_is_called(harness: Harness) -> None:
    """A late callback is called at once, and only once."""
    lease = await harness.must_acquire(harness.lock("a", lease=harness.store.lease, renew=False))
    await harness.wait_until(lambda: lease.lost)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await harness.wait_until(lambda: reported == [lease])


@scenario()
async def release_is_not_reported_as_a_loss(harness: Harness) -> None:
    """A released lease is not lost, even after its end."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name, lease=harness.store.lease)
        lease = await harness.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        await lease.release()
        # It was acquired later, so it ends later.
        later = await harness.must_acquire(
            harness.lock("b", lease=harness.store.lease, renew=False)
        )
        await harness.wait_until(lambda: later.lost)
        assert (reported, lease.lost) == ([], False)

    await harness.retry_if_slow(5, attempt)


@scenario()
async def lost_lock_cannot_be_reacquired_until_released(harness: Harness) -> None:
    """Acquiring raises LeaseLost until the lost hold is released; then it is a new grant."""
    lock = harness.lock("a", lease=harness.store.lease, renew=False)
    lease = await harness.must_acquire(lock)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await harness.wait_until(lambda: bool(reported))
    with raising(LeaseLost, "a"):
        await lock.acquire()
    with raising(LeaseLost, "a"):
        await lock.release()
    fresh = await harness.must_acquire(lock)
    assert fresh.token > lease.token
    await fresh.release()


@scenario()
async def lease_ends_at_max_hold(harness: Harness) -> None:
    """It is renewed until then, its loss is reported as any other, and the lock is free."""

    async def attempt(name: str) -> None:
        length = harness.store.lease
        lock = harness.lock(name, lease=length, max_hold=3 * length)
        lease = await harness.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        await harness.wait_until(lambda: lease.lost)
        with raising(LeaseLost, name) as caught:
            await lease.release()
        if "max_hold" not in str(caught[0]):
            raise caught[0]  # a renewal was sent too late
        assert lease.renewals > 0
        await harness.wait_until(lambda: reported == [lease])
        await (await harness.must_acquire(harness.client().lock(name))).release()

    await harness.retry_if_slow(5, attempt)


@scenario()
async def lease_in_danger_is_reported_once_before_its_end(harness: Harness) -> None:
    """A callback is called while the lease is held, and not for a lease that was released."""

    async def attempt(name: str) -> None:
        length = harness.store.lease
        lease = await harness.must_acquire(harness.lock(name, lease=length, renew=False))
        released = await harness.must_acquire(harness.lock("b", lease=length, renew=False))
        called: list[tuple[Lease, bool]] = []
        lease.on_danger(length / 2, lambda its: called.append((its, its.lost)))
        released.on_danger(length / 2, lambda its: called.append((its, its.lost)))
        await released.release()
        await harness.wait_until(lambda: bool(called))
        await harness.wait_until(lambda: lease.lost)
        with raising(LeaseLost, name):
            await lease.release()
        assert called == [(lease, False)]

    await harness.retry_if_slow(5, attempt)


@scenario()
async def lease_that_is_renewed_is_in_no_danger(harness: Harness) -> None:
    """Its callback is not called; a time that a renewal does not leave is refused."""

    async def attempt(name: str) -> None:
        lease = await harness.must_acquire(harness.lock(name, lease=harness.store.lease))
        called: list[Lease] = []
        lease.on_danger(harness.store.lease / 20, called.append)
        with raising(ValueError, "seconds"):
            lease.on_danger(harness.store.lease, called.append)
        await harness.wait_until(lambda: lease.lost or lease.renewals > 2)
        await lease.release()
        assert called == []

    await harness.retry_if_slow(5, attempt)


@scenario()
async def body_that_lost_its_lease_raises_lease_lost(harness: Harness) -> None:
    """The end of a body that did not notice the loss raises LeaseLost."""
    with raising(LeaseLost, "a"):
        async with harness.lock("a", lease=harness.store.lease, renew=False) as lease:
            try:
                await harness.wait_until(lambda: lease.lost)
            except asyncio.CancelledError:
                assert harness.driver == "asyncio"
                raise
    await (await harness.must_acquire(harness.client().lock("a"))).release()


@scenario()
async def exception_of_the_body_is_kept(harness: Harness) -> None:
    """The caller gets it, with a note that the lease was lost."""
    with raising(Own, "mine") as caught:
        async with harness.lock("a", lease=1.2) as lease:
            try:
                breaking = harness.spawn(harness.client().break_lock, "a")
                await harness.wait_until(lambda: lease.lost)
            finally:
                raise Own("mine")
    await breaking.join()
    assert any("lost" in note and "a" in note for note in caught[0].__notes__)


@scenario()
async def exception_of_a_body_is_unchanged(harness: Harness) -> None:
    """The exception has no note, and the lock is free afterwards."""
    lock = harness.lock("a")
    with raising(Own, "mine") as caught:
        async with lock:
            raise Own("mine")
    assert not hasattr(caught[0], "__notes__")
    assert not await lock.locked()


@scenario("asyncio")
async def body_is_cancelled_on_loss(harness: Harness) -> None:
    """A task that waits in the body is cancelled, and is not left in the cancelled state."""
    steps: list[str] = []
    with raising(LeaseLost, "a"):
        async with harness.lock("a", lease=0.9):
            # Not in the body itself: some stores report the loss before break_lock returns.
            breaking = harness.spawn(harness.client().break_lock, "a")
            try:
                await harness.wait_until(lambda: False)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise
    task = asyncio.current_task()
    assert task is not None
    assert (steps, task.cancelling()) == (["cancelled"], 0)
    await breaking.join()
    await harness.pause(0)


@scenario("asyncio")
async def nested_bodies_are_cancelled_once(harness: Harness) -> None:
    """Both bodies raise LeaseLost; the task goes on after them."""
    lock = harness.lock("a", lease=0.9)
    with raising(LeaseLost, "a"):
        async with lock:
            with raising(LeaseLost, "a"):
                async with lock:
                    breaking = harness.spawn(harness.client().break_lock, "a")
                    await harness.wait_until(lambda: False)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await breaking.join()
    await harness.pause(0)


@scenario("asyncio")
async def callback_may_be_a_coroutine_function(harness: Harness) -> None:
    """It is awaited, in a task of its own."""
    reported: list[Lease] = []

    async def report(lease: Lease) -> None:
        await harness.pause(0)
        reported.append(lease)

    lease = await harness.must_acquire(harness.lock("a", lease=harness.store.lease, renew=False))
    lease.on_lost(report)
    await harness.wait_until(lambda: reported == [lease])


@scenario("asyncio")
async def other_cancellations_are_not_swallowed(harness: Harness) -> None:
    """A body that is cancelled for another reason stays cancelled and releases the lock."""
    lock = harness.lock("a")
    other = harness.spawn(_hold_forever, harness, "a")
    await harness.wait_until(lock.locked)
    other.cancel()
    assert isinstance(await other.end(), asyncio.CancelledError)
    assert not await lock.locked()


async def _hold_forever(harness: Harness, name: str) -> None:
    async with harness.lock(name):
        await harness.wait_until(lambda: False)
