"""Cancellation while acquiring, holding or releasing leaves no hold and no waiter behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness, Peer

MOMENTS = 14


async def _hold_forever(harness: Harness, lock: Lock) -> None:
    async with lock:
        await harness.wait_until(lambda: False)


async def _enter_and_leave(lock: Lock) -> None:
    async with lock:
        pass


async def _reach_moment(harness: Harness, moment: int) -> None:
    """Wait for some iterations of the loop, and for later moments some time as well."""
    for _ in range(moment):
        await harness.pause(0)
    if moment > MOMENTS / 2:
        await harness.pause(0.0002 * moment)


async def _cancel(other: Peer[None]) -> None:
    other.cancel()
    error = await other.end()
    assert error is None or isinstance(error, asyncio.CancelledError)


async def _expect_free(harness: Harness, lock: Lock) -> None:
    """Check that the lock is free sooner than an abandoned claim or lease would end."""
    began = harness.now()
    await (await harness.must_acquire(lock)).release()
    harness.check_elapsed(began, harness.store.confirm_within * 0.75)


@scenario("identifies_owner", "asyncio")
async def cancelled_acquire_leaves_no_hold(harness: Harness) -> None:
    """Cancelled at any moment of acquiring a free lock, a task leaves no hold."""
    rival = harness.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = harness.lock(f"{name} {moment}")
            other = harness.spawn(_hold_forever, harness, lock)
            await _reach_moment(harness, moment)
            await _cancel(other)
            await _expect_free(harness, rival.lock(lock.name))

    await harness.retry_if_slow(3, attempt)


@scenario("has_queue", "asyncio")
async def cancelled_waiter_leaves_the_queue(harness: Harness) -> None:
    """Cancelled at any moment of waiting, a task is removed from the queue."""
    lock, waiting = harness.lock("a"), harness.client().lock("a")
    async with lock:
        for moment in range(MOMENTS):
            other = harness.spawn(_hold_forever, harness, waiting)
            await _reach_moment(harness, moment)
            await _cancel(other)
            await harness.wait_for_waiters(lock, 0)
    await (await harness.must_acquire(waiting)).release()


@scenario("has_queue", "asyncio")
async def cancelled_waiter_passes_its_grant_on(harness: Harness) -> None:
    """Cancelled at any moment around its grant, a waiter releases the lock."""
    waiting, rival = harness.client(), harness.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = harness.lock(f"{name} {moment}")
            lease = await harness.must_acquire(lock)
            other = harness.spawn(_hold_forever, harness, waiting.lock(lock.name))
            await harness.wait_for_waiters(lock, 1)
            release = harness.spawn(lease.release)
            await _reach_moment(harness, moment)
            await _cancel(other)
            await release.join()
            await _expect_free(harness, rival.lock(lock.name))

    await harness.retry_if_slow(3, attempt)


@scenario("identifies_owner", "asyncio")
async def cancelled_release_still_releases(harness: Harness) -> None:
    """Cancelled at any moment of an empty body, a task leaves the lock free."""
    rival = harness.client()

    async def attempt(name: str) -> None:
        for moment in range(2 * MOMENTS):
            lock = harness.lock(f"{name} {moment}")
            other = harness.spawn(_enter_and_leave, lock)
            await _reach_moment(harness, moment)
            await _cancel(other)
            await _expect_free(harness, rival.lock(lock.name))

    await harness.retry_if_slow(3, attempt)


@scenario("has_queue", "asyncio")
async def second_cancellation_changes_nothing(harness: Harness) -> None:
    """A second cancellation, one loop iteration after the first, does not stop the clean-up."""
    lock, waiting = harness.lock("a"), harness.client()
    for moment in range(MOMENTS):
        async with lock:
            other = harness.spawn(_hold_forever, harness, waiting.lock("a"))
            await _reach_moment(harness, moment)
            other.cancel()
            await harness.pause(0)
            await _cancel(other)
            await harness.wait_for_waiters(lock, 0)


@scenario("has_queue", "asyncio")
async def asyncio_timeout_ends_the_wait(harness: Harness) -> None:
    """`asyncio.timeout` around an acquire ends it and removes the waiter."""
    lock, waiting = harness.lock("a"), harness.client().lock("a")
    async with lock:
        try:
            async with asyncio.timeout(0.05):
                await waiting.acquire()
        except TimeoutError:
            await harness.wait_for_waiters(lock, 0)
        else:
            raise AssertionError("the wait was not ended")
    await (await harness.must_acquire(waiting)).release()


@scenario("has_queue", "asyncio")
async def many_waiters_are_cancelled_at_once(harness: Harness) -> None:
    """After many waiting tasks are cancelled at once, the queue is empty."""
    lock, waiting = harness.lock("a"), harness.client()
    count = min(200, harness.store.max_waiters)
    async with lock:
        others = [harness.spawn(_hold_forever, harness, waiting.lock("a")) for _ in range(count)]
        await harness.wait_for_waiters(waiting.lock("a"), count)
        for other in others:
            other.cancel()
        for other in others:
            await _cancel(other)
        await harness.wait_for_waiters(lock, 0)
    await (await harness.must_acquire(waiting.lock("a"))).release()


@scenario("asyncio")
async def failed_task_group_releases_its_locks(harness: Harness) -> None:
    """When one task fails, the others are cancelled, and all locks become free."""
    client = harness.client()

    async def fail() -> None:
        await harness.wait_until(client.lock("b").locked)
        raise ValueError("one of them failed")

    try:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c", "a", "b", "c"):
                group.create_task(_hold_forever(harness, client.lock(name)))
            group.create_task(fail())
    except* ValueError:
        await harness.wait_until(lambda: _no_locks(harness))
    else:
        raise AssertionError("the group did not fail")


async def _no_locks(harness: Harness) -> bool:
    return await harness.first.locks() == []
