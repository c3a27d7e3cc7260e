"""Cancellation while acquiring, holding or releasing leaves no hold and no waiter behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.world import Peer, World

MOMENTS = 14


async def _hold_forever(world: World, lock: Lock) -> None:
    async with lock:
        await world.wait_until(lambda: False)


async def _enter_and_leave(lock: Lock) -> None:
    async with lock:
        pass


async def _reach_moment(world: World, moment: int) -> None:
    """Wait for some iterations of the loop, and for later moments some time as well."""
    for _ in range(moment):
        await world.pause(0)
    if moment > MOMENTS / 2:
        await world.pause(0.0002 * moment)


async def _cancel(other: Peer[None]) -> None:
    other.cancel()
    error = await other.end()
    assert error is None or isinstance(error, asyncio.CancelledError)


async def _expect_free(world: World, lock: Lock) -> None:
    """Check that the lock is free sooner than an abandoned claim or lease would end."""
    began = world.now()
    await (await world.must_acquire(lock)).release()
    world.check_elapsed(began, world.store.confirm_within * 0.75)


@scenario("identifies_owner", "asyncio")
async def cancelled_acquire_leaves_no_hold(world: World) -> None:
    """Cancelled at any moment of acquiring a free lock, a task leaves no hold."""
    rival = world.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = world.lock(f"{name} {moment}")
            other = world.spawn(_hold_forever, world, lock)
            await _reach_moment(world, moment)
            await _cancel(other)
            await _expect_free(world, rival.lock(lock.name))

    await world.retry_if_slow(3, attempt)


@scenario("has_queue", "asyncio")
async def cancelled_waiter_leaves_the_queue(world: World) -> None:
    """Cancelled at any moment of waiting, a task is removed from the queue."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    async with lock:
        for moment in range(MOMENTS):
            other = world.spawn(_hold_forever, world, waiting)
            await _reach_moment(world, moment)
            await _cancel(other)
            await world.wait_for_waiters(lock, 0)
    await (await world.must_acquire(waiting)).release()


@scenario("has_queue", "asyncio")
async def cancelled_waiter_passes_its_grant_on(world: World) -> None:
    """Cancelled at any moment around its grant, a waiter releases the lock."""
    waiting, rival = world.client(), world.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = world.lock(f"{name} {moment}")
            lease = await world.must_acquire(lock)
            other = world.spawn(_hold_forever, world, waiting.lock(lock.name))
            await world.wait_for_waiters(lock, 1)
            release = world.spawn(lease.release)
            await _reach_moment(world, moment)
            await _cancel(other)
            await release.join()
            await _expect_free(world, rival.lock(lock.name))

    await world.retry_if_slow(3, attempt)


@scenario("identifies_owner", "asyncio")
async def cancelled_release_still_releases(world: World) -> None:
    """Cancelled at any moment of an empty body, a task leaves the lock free."""
    rival = world.client()

    async def attempt(name: str) -> None:
        for moment in range(2 * MOMENTS):
            lock = world.lock(f"{name} {moment}")
            other = world.spawn(_enter_and_leave, lock)
            await _reach_moment(world, moment)
            await _cancel(other)
            await _expect_free(world, rival.lock(lock.name))

    await world.retry_if_slow(3, attempt)


@scenario("has_queue", "asyncio")
async def second_cancellation_changes_nothing(world: World) -> None:
    """A second cancellation, one loop iteration after the first, does not stop the clean-up."""
    lock, waiting = world.lock("a"), world.client()
    for moment in range(MOMENTS):
        async with lock:
            other = world.spawn(_hold_forever, world, waiting.lock("a"))
            await _reach_moment(world, moment)
            other.cancel()
            await world.pause(0)
            await _cancel(other)
            await world.wait_for_waiters(lock, 0)


@scenario("has_queue", "asyncio")
async def asyncio_timeout_ends_the_wait(world: World) -> None:
    """`asyncio.timeout` around an acquire ends it and removes the waiter."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    async with lock:
        try:
            async with asyncio.timeout(0.05):
                await waiting.acquire()
        except TimeoutError:
            await world.wait_for_waiters(lock, 0)
        else:
            raise AssertionError("the wait was not ended")
    await (await world.must_acquire(waiting)).release()


@scenario("has_queue", "asyncio")
async def many_waiters_are_cancelled_at_once(world: World) -> None:
    """After many waiting tasks are cancelled at once, the queue is empty."""
    lock, waiting = world.lock("a"), world.client()
    count = min(200, world.store.max_waiters)
    async with lock:
        others = [world.spawn(_hold_forever, world, waiting.lock("a")) for _ in range(count)]
        await world.wait_for_waiters(waiting.lock("a"), count)
        for other in others:
            other.cancel()
        for other in others:
            await _cancel(other)
        await world.wait_for_waiters(lock, 0)
    await (await world.must_acquire(waiting.lock("a"))).release()


@scenario("asyncio")
async def failed_task_group_releases_its_locks(world: World) -> None:
    """When one task fails, the others are cancelled, and all locks become free."""
    client = world.client()

    async def fail() -> None:
        await world.wait_until(client.lock("b").locked)
        raise ValueError("one of them failed")

    try:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c", "a", "b", "c"):
                group.create_task(_hold_forever(world, client.lock(name)))
            group.create_task(fail())
    except* ValueError:
        await world.wait_until(lambda: _no_locks(world))
    else:
        raise AssertionError("the group did not fail")


async def _no_locks(world: World) -> bool:
    return await world.first.locks() == []
