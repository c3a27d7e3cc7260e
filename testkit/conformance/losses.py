"""A loss is reported to the holder: by the lease, by callbacks, and at the end of the body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease
    from testkit.conformance.world import World


class Own(Exception):
    """An exception raised by a body."""


@scenario()
async def broken_lock_is_reported_at_the_next_renewal(world: World) -> None:
    """The callback, `lost`, `ensure` and the release report it long before the lease ends."""

    async def attempt(name: str) -> None:
        lock = world.lock(name, lease=1.5)
        lease = await world.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        broken = world.now()
        await world.client().break_lock(name)
        await world.wait_until(lambda: lease.lost)
        passed = world.now() - broken
        with raising(LeaseLost, name, str(lease.token)):
            lease.ensure()
        assert (lease.remaining, lock.owned()) == (0.0, False)
        await world.wait_until(lambda: bool(reported))
        with raising(LeaseLost, name):
            await lease.release()
        assert reported == [lease]
        world.check_duration(passed, 1.0)

    await world.retry_if_slow(3, attempt)


@scenario()
async def callback_added_after_the_loss_is_called(world: World) -> None:
    """A late callback is called at once, and only once."""
    lease = await world.must_acquire(world.lock("a", lease=world.store.lease, renew=False))
    await world.wait_until(lambda: lease.lost)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await world.wait_until(lambda: reported == [lease])


@scenario()
async def release_is_not_reported_as_a_loss(world: World) -> None:
    """A released lease is not lost, even after its end."""

    async def attempt(name: str) -> None:
        lock = world.lock(name, lease=world.store.lease)
        lease = await world.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        await lease.release()
        # It was acquired later, so it ends later.
        later = await world.must_acquire(world.lock("b", lease=world.store.lease, renew=False))
        await world.wait_until(lambda: later.lost)
        assert (reported, lease.lost) == ([], False)

    await world.retry_if_slow(5, attempt)


@scenario()
async def lost_lock_cannot_be_reacquired_until_released(world: World) -> None:
    """Acquiring raises LeaseLost until the lost hold is released; then it is a new grant."""
    lock = world.lock("a", lease=world.store.lease, renew=False)
    lease = await world.must_acquire(lock)
    reported: list[Lease] = []
    lease.on_lost(reported.append)
    await world.wait_until(lambda: bool(reported))
    with raising(LeaseLost, "a"):
        await lock.acquire()
    with raising(LeaseLost, "a"):
        await lock.release()
    fresh = await world.must_acquire(lock)
    assert fresh.token > lease.token
    await fresh.release()


@scenario()
async def lease_ends_at_max_hold(world: World) -> None:
    """It is renewed until then, its loss is reported as any other, and the lock is free."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        lock = world.lock(name, lease=length, max_hold=3 * length)
        lease = await world.must_acquire(lock)
        reported: list[Lease] = []
        lease.on_lost(reported.append)
        await world.wait_until(lambda: lease.lost)
        with raising(LeaseLost, name) as caught:
            await lease.release()
        if "max_hold" not in str(caught[0]):
            raise caught[0]  # a renewal was sent too late
        assert lease.renewals > 0
        await world.wait_until(lambda: reported == [lease])
        await (await world.must_acquire(world.client().lock(name))).release()

    await world.retry_if_slow(5, attempt)


@scenario()
async def lease_in_danger_is_reported_once_before_its_end(world: World) -> None:
    """A callback is called while the lease is held, and not for a lease that was released."""

    async def attempt(name: str) -> None:
        length = world.store.lease
        lease = await world.must_acquire(world.lock(name, lease=length, renew=False))
        released = await world.must_acquire(world.lock("b", lease=length, renew=False))
        called: list[tuple[Lease, bool]] = []
        lease.on_danger(length / 2, lambda its: called.append((its, its.lost)))
        released.on_danger(length / 2, lambda its: called.append((its, its.lost)))
        await released.release()
        await world.wait_until(lambda: bool(called))
        await world.wait_until(lambda: lease.lost)
        with raising(LeaseLost, name):
            await lease.release()
        assert called == [(lease, False)]

    await world.retry_if_slow(5, attempt)


@scenario()
async def lease_that_is_renewed_is_in_no_danger(world: World) -> None:
    """Its callback is not called; a time that a renewal does not leave is refused."""

    async def attempt(name: str) -> None:
        lease = await world.must_acquire(world.lock(name, lease=world.store.lease))
        called: list[Lease] = []
        lease.on_danger(world.store.lease / 20, called.append)
        with raising(ValueError, "seconds"):
            lease.on_danger(world.store.lease, called.append)
        await world.wait_until(lambda: lease.lost or lease.renewals > 2)
        await lease.release()
        assert called == []

    await world.retry_if_slow(5, attempt)


@scenario()
async def body_that_lost_its_lease_raises_lease_lost(world: World) -> None:
    """The end of a body that did not notice the loss raises LeaseLost."""
    with raising(LeaseLost, "a"):
        async with world.lock("a", lease=world.store.lease, renew=False) as lease:
            try:
                await world.wait_until(lambda: lease.lost)
            except asyncio.CancelledError:
                assert world.driver == "asyncio"
                raise
    await (await world.must_acquire(world.client().lock("a"))).release()


@scenario()
async def exception_of_the_body_is_kept(world: World) -> None:
    """The caller gets it, with a note that the lease was lost."""
    with raising(Own, "mine") as caught:
        async with world.lock("a", lease=1.2) as lease:
            try:
                breaking = world.spawn(world.client().break_lock, "a")
                await world.wait_until(lambda: lease.lost)
            finally:
                raise Own("mine")
    await breaking.join()
    assert any("lost" in note and "a" in note for note in caught[0].__notes__)


@scenario()
async def exception_of_a_body_is_unchanged(world: World) -> None:
    """The exception has no note, and the lock is free afterwards."""
    lock = world.lock("a")
    with raising(Own, "mine") as caught:
        async with lock:
            raise Own("mine")
    assert not hasattr(caught[0], "__notes__")
    assert not await lock.locked()


@scenario("asyncio")
async def body_is_cancelled_on_loss(world: World) -> None:
    """A task that waits in the body is cancelled, and is not left in the cancelled state."""
    steps: list[str] = []
    with raising(LeaseLost, "a"):
        async with world.lock("a", lease=0.9):
            # Not in the body itself: some stores report the loss before break_lock returns.
            breaking = world.spawn(world.client().break_lock, "a")
            try:
                await world.wait_until(lambda: False)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise
    task = asyncio.current_task()
    assert task is not None
    assert (steps, task.cancelling()) == (["cancelled"], 0)
    await breaking.join()
    await world.pause(0)


@scenario("asyncio")
async def nested_bodies_are_cancelled_once(world: World) -> None:
    """Both bodies raise LeaseLost; the task goes on after them."""
    lock = world.lock("a", lease=0.9)
    with raising(LeaseLost, "a"):
        async with lock:
            with raising(LeaseLost, "a"):
                async with lock:
                    breaking = world.spawn(world.client().break_lock, "a")
                    await world.wait_until(lambda: False)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await breaking.join()
    await world.pause(0)


@scenario("asyncio")
async def callback_may_be_a_coroutine_function(world: World) -> None:
    """It is awaited, in a task of its own."""
    reported: list[Lease] = []

    async def report(lease: Lease) -> None:
        await world.pause(0)
        reported.append(lease)

    lease = await world.must_acquire(world.lock("a", lease=world.store.lease, renew=False))
    lease.on_lost(report)
    await world.wait_until(lambda: reported == [lease])


@scenario("asyncio")
async def other_cancellations_are_not_swallowed(world: World) -> None:
    """A body that is cancelled for another reason stays cancelled and releases the lock."""
    lock = world.lock("a")
    other = world.spawn(_hold_forever, world, "a")
    await world.wait_until(lock.locked)
    other.cancel()
    assert isinstance(await other.end(), asyncio.CancelledError)
    assert not await lock.locked()


async def _hold_forever(world: World, name: str) -> None:
    async with world.lock(name):
        await world.wait_until(lambda: False)
