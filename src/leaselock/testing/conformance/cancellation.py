"""A task that is cancelled while it acquires, holds or releases leaves nothing behind."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from leaselock.testing.conformance.scenario import scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import Other, World

MOMENTS = 14


async def _stay(world: World, lock: Lock) -> None:
    async with lock:
        await world.until(lambda: False)


async def _pass(lock: Lock) -> None:
    async with lock:
        pass


async def _let_pass(world: World, moment: int) -> None:
    """Some turns of the loop, and for the later moments some time as well."""
    for _ in range(moment):
        await world.pause(0)
    if moment > MOMENTS / 2:
        await world.pause(0.0002 * moment)


async def _cancelled(other: Other[None]) -> None:
    other.cancel()
    error = await other.end()
    assert error is None or isinstance(error, asyncio.CancelledError)


async def _expect_free(world: World, lock: Lock) -> None:
    """Soon: sooner than a claim or a lease that was left behind would end."""
    began = world.now()
    await (await world.take(lock)).release()
    world.punctual(began, world.store.claim_time * 0.75)


@scenario("owner", "asyncio")
async def whoever_is_cancelled_in_mid_acquire_holds_nothing(world: World) -> None:
    """At any moment of taking a free lock."""
    rival = world.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = world.lock(f"{name} {moment}")
            other = world.spawn(_stay, world, lock)
            await _let_pass(world, moment)
            await _cancelled(other)
            await _expect_free(world, rival.lock(lock.name))

    await world.best_of(3, attempt)


@scenario("queue", "asyncio")
async def whoever_is_cancelled_in_the_queue_leaves_it(world: World) -> None:
    """At any moment of waiting for a lock that another holds."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    async with lock:
        for moment in range(MOMENTS):
            other = world.spawn(_stay, world, waiting)
            await _let_pass(world, moment)
            await _cancelled(other)
            await world.until_waiting(lock, 0)
    await (await world.take(waiting)).release()


@scenario("queue", "asyncio")
async def whoever_is_cancelled_when_its_turn_comes_passes_it_on(world: World) -> None:
    """At any moment around the hand-over."""
    waiting, rival = world.client(), world.client()

    async def attempt(name: str) -> None:
        for moment in range(MOMENTS):
            lock = world.lock(f"{name} {moment}")
            lease = await world.take(lock)
            other = world.spawn(_stay, world, waiting.lock(lock.name))
            await world.until_waiting(lock, 1)
            release = world.spawn(lease.release)
            await _let_pass(world, moment)
            await _cancelled(other)
            await release.join()
            await _expect_free(world, rival.lock(lock.name))

    await world.best_of(3, attempt)


@scenario("owner", "asyncio")
async def whoever_is_cancelled_while_it_releases_has_released(world: World) -> None:
    """At any moment of a body that ends at once."""
    rival = world.client()

    async def attempt(name: str) -> None:
        for moment in range(2 * MOMENTS):
            lock = world.lock(f"{name} {moment}")
            other = world.spawn(_pass, lock)
            await _let_pass(world, moment)
            await _cancelled(other)
            await _expect_free(world, rival.lock(lock.name))

    await world.best_of(3, attempt)


@scenario("queue", "asyncio")
async def the_undoing_may_be_cancelled_as_well(world: World) -> None:
    """A second cancellation, one turn after the first, changes nothing."""
    lock, waiting = world.lock("a"), world.client()
    for moment in range(MOMENTS):
        async with lock:
            other = world.spawn(_stay, world, waiting.lock("a"))
            await _let_pass(world, moment)
            other.cancel()
            await world.pause(0)
            await _cancelled(other)
            await world.until_waiting(lock, 0)


@scenario("queue", "asyncio")
async def a_timeout_of_asyncio_is_a_cancellation(world: World) -> None:
    """`asyncio.timeout` around an acquire ends it, and leaves the queue."""
    lock, waiting = world.lock("a"), world.client().lock("a")
    async with lock:
        try:
            async with asyncio.timeout(0.05):
                await waiting.acquire()
        except TimeoutError:
            await world.until_waiting(lock, 0)
        else:
            raise AssertionError("the wait was not ended")
    await (await world.take(waiting)).release()


@scenario("queue", "asyncio")
async def a_crowd_is_cancelled(world: World) -> None:
    """Many tasks that wait are cancelled at once, and the queue is empty."""
    lock, waiting = world.lock("a"), world.client()
    crowd = min(200, world.store.crowd)
    async with lock:
        others = [world.spawn(_stay, world, waiting.lock("a")) for _ in range(crowd)]
        await world.until_waiting(waiting.lock("a"), crowd)
        for other in others:
            other.cancel()
        for other in others:
            await _cancelled(other)
        await world.until_waiting(lock, 0)
    await (await world.take(waiting.lock("a"))).release()


@scenario("asyncio")
async def a_task_group_that_fails_gives_its_locks_back(world: World) -> None:
    """One task fails, the others are cancelled: some held, some waited."""
    client = world.client()

    async def fail() -> None:
        await world.until(client.lock("b").locked)
        raise ValueError("one of them failed")

    try:
        async with asyncio.TaskGroup() as group:
            for name in ("a", "b", "c", "a", "b", "c"):
                group.create_task(_stay(world, client.lock(name)))
            group.create_task(fail())
    except* ValueError:
        await world.until(lambda: _nothing(world))
    else:
        raise AssertionError("the group did not fail")


async def _nothing(world: World) -> bool:
    return await world.first.locks() == []
