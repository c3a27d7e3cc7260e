"""A loss is told to the holder: by the lease, by a callback, and by the end of the body."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lease
    from leaselock.testing.conformance.world import World


class Own(Exception):
    """What a body raises by itself."""


@scenario()
async def what_was_broken_is_told_at_the_next_renewal(world: World) -> None:
    """The callback, `lost`, `ensure` and the release say so, long before the lease would end."""

    async def attempt(name: str) -> None:
        lock = world.lock(name, lease=1.5)
        lease = await world.take(lock)
        told: list[Lease] = []
        lease.on_lost(told.append)
        broken = world.now()
        await world.client().break_lock(name)
        await world.until(lambda: lease.lost)
        passed = world.now() - broken
        with raising(LeaseLost, name, str(lease.token)):
            lease.ensure()
        assert (lease.remaining, lock.owned()) == (0.0, False)
        await world.until(lambda: bool(told))
        with raising(LeaseLost, name):
            await lease.release()
        assert told == [lease]
        world.bounded(passed, 1.0)

    await world.best_of(3, attempt)


@scenario()
async def who_asks_after_the_loss_is_told_too(world: World) -> None:
    """A callback that comes late is called all the same, once."""
    lease = await world.take(world.lock("a", lease=world.store.lease, renew=False))
    await world.until(lambda: lease.lost)
    told: list[Lease] = []
    lease.on_lost(told.append)
    await world.until(lambda: told == [lease])


@scenario()
async def nobody_is_told_of_a_release(world: World) -> None:
    """What was given back is not lost, even when its time has passed since."""
    lock = world.lock("a", lease=world.store.lease)
    lease = await world.take(lock)
    told: list[Lease] = []
    lease.on_lost(told.append)
    await lease.release()
    later = await world.take(world.lock("b", lease=2 * world.store.lease, renew=False))
    await world.until(lambda: later.lost)
    assert (told, lease.lost) == ([], False)


@scenario()
async def after_a_loss_the_lock_is_not_taken_by_nesting(world: World) -> None:
    """LeaseLost, until the lost hold is released; then it is acquired afresh."""
    lock = world.lock("a", lease=world.store.lease, renew=False)
    lease = await world.take(lock)
    told: list[Lease] = []
    lease.on_lost(told.append)
    await world.until(lambda: bool(told))
    with raising(LeaseLost, "a"):
        await lock.acquire()
    with raising(LeaseLost, "a"):
        await lock.release()
    fresh = await world.take(lock)
    assert fresh.token > lease.token
    await fresh.release()


@scenario()
async def the_end_of_a_body_tells_of_the_loss(world: World) -> None:
    """A body that did not notice is told by LeaseLost at its end."""
    with raising(LeaseLost, "a"):
        async with world.lock("a", lease=world.store.lease, renew=False) as lease:
            try:
                await world.until(lambda: lease.lost)
            except asyncio.CancelledError:
                assert world.driver == "asyncio"
                raise
    await (await world.take(world.client().lock("a"))).release()


@scenario()
async def the_body_s_own_exception_is_kept(world: World) -> None:
    """It is what the caller sees, with a note that the lease was lost meanwhile."""
    with raising(Own, "mine") as caught:
        async with world.lock("a", lease=1.2) as lease:
            try:
                breaking = world.spawn(world.client().break_lock, "a")
                await world.until(lambda: lease.lost)
            finally:
                raise Own("mine")
    await breaking.join()
    assert any("lost" in note and "a" in note for note in caught[0].__notes__)


@scenario()
async def an_exception_passes_through_a_healthy_body(world: World) -> None:
    """It is not changed, and the lock is free after it."""
    lock = world.lock("a")
    with raising(Own, "mine") as caught:
        async with lock:
            raise Own("mine")
    assert not hasattr(caught[0], "__notes__")
    assert not await lock.locked()


@scenario("asyncio")
async def the_body_is_cancelled(world: World) -> None:
    """A task that waits for something else under the lock is stopped, and not left cancelled."""
    steps: list[str] = []
    with raising(LeaseLost, "a"):
        async with world.lock("a", lease=0.9):
            # Not by the body itself: some stores tell of the loss before the breaker has an answer.
            breaking = world.spawn(world.client().break_lock, "a")
            try:
                await world.until(lambda: False)
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
    """Both tell of the loss; the task goes on after them."""
    lock = world.lock("a", lease=0.9)
    with raising(LeaseLost, "a"):
        async with lock:
            with raising(LeaseLost, "a"):
                async with lock:
                    breaking = world.spawn(world.client().break_lock, "a")
                    await world.until(lambda: False)
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await breaking.join()
    await world.pause(0)


@scenario("asyncio")
async def a_callback_may_be_a_coroutine(world: World) -> None:
    """It is awaited, in a task of its own."""
    told: list[Lease] = []

    async def tell(lease: Lease) -> None:
        await world.pause(0)
        told.append(lease)

    lease = await world.take(world.lock("a", lease=world.store.lease, renew=False))
    lease.on_lost(tell)
    await world.until(lambda: told == [lease])


@scenario("asyncio")
async def a_cancellation_from_outside_is_not_swallowed(world: World) -> None:
    """Who is cancelled in the body for another reason is cancelled, and gives the lock back."""
    lock = world.lock("a")
    other = world.spawn(_stay, world, "a")
    await world.until(lock.locked)
    other.cancel()
    assert isinstance(await other.end(), asyncio.CancelledError)
    assert not await lock.locked()


async def _stay(world: World, name: str) -> None:
    async with world.lock(name):
        await world.until(lambda: False)
