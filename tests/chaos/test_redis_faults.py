"""Each operation with each fault: a request or reply lost or late, and the line cut.

Law: the answer is right, or it is Unknown; and afterwards nothing is held by nobody, even when the
request arrives after its asker gave up and somebody else has the lock (hazards D1, D2).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.scene import LEASE, PATIENCE, Scene, play

from leaselock import LeaseLost, NotHeld, OutcomeUnknown
from leaselock.testing.proxy import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from tests.servers.redis import Redis

    Story = Callable[[Scene, str], Coroutine[Any, Any, None]]

COLOURS = ("threads", "asyncio")
SHORT = 1.2


async def acquire(scene: Scene, action: str) -> None:
    """Granted, as the store says too; or Unknown."""
    scene.plan(action)
    try:
        lease = await scene.lock().acquire(PATIENCE)
    except OutcomeUnknown:
        return
    assert lease is not None
    assert await scene.token() == lease.token
    await lease.release()


async def try_once(scene: Scene, action: str) -> None:
    """The same for a try that does not wait; the lock is free, so None would be wrong."""
    scene.plan(action)
    try:
        lease = await scene.lock().acquire(0)
    except OutcomeUnknown:
        return
    assert lease is not None
    assert await scene.token() == lease.token
    await lease.release()


async def extend(scene: Scene, action: str) -> None:
    """It has more time, or nobody knows; it is held in any case."""
    lease = await scene.world.must_acquire(scene.lock())
    scene.plan(action)
    try:
        await lease.extend(2 * LEASE)
    except OutcomeUnknown:
        assert not lease.lost
    else:
        assert scene.server.ask("PTTL", "a") > 1000 * 1.5 * LEASE
    assert await scene.token() == lease.token
    await lease.release()


async def renew(scene: Scene, action: str) -> None:
    """One renewal that fails is no loss: the next one comes in time."""
    short = SHORT * scene.pace
    lease = await scene.world.must_acquire(scene.lock(lease=short))
    fault = scene.plan(action)
    await scene.world.wait_until(fault.struck.is_set, PATIENCE)
    struck = scene.world.now()
    await scene.world.wait_until(lambda: scene.world.now() > struck + short)
    lease.ensure()
    assert await scene.token() == lease.token
    await lease.release()


async def release(scene: Scene, action: str) -> None:
    """It is free, or LeaseLost says that the release was not confirmed."""
    lease = await scene.world.must_acquire(scene.lock())
    scene.plan(action)
    try:
        await lease.release()
    except LeaseLost as error:
        if isinstance(error.__cause__, OutcomeUnknown):
            return
        raise
    assert await scene.token() is None


async def release_to_a_waiter(scene: Scene, action: str) -> None:
    """Who waits directly gets it."""
    lease = await scene.world.must_acquire(scene.lock())
    waiter = scene.world.spawn(take_and_give_back, scene)
    await scene.world.wait_for_waiters(scene.direct(), 1)
    scene.plan(action)
    with contextlib.suppress(LeaseLost):
        await lease.release()
    assert await waiter.join() > lease.token


async def take_and_give_back(scene: Scene) -> int:
    lease = await scene.world.must_acquire(scene.direct())
    await lease.release()
    return lease.token


async def break_one_grant(scene: Scene, action: str) -> None:
    """With a token, it hits that grant or none, however late it arrives."""
    lease = await scene.world.must_acquire(scene.direct())
    scene.plan(action)
    try:
        await scene.client.break_lock("a", token=lease.token)
    except (OutcomeUnknown, NotHeld):
        # NotHeld: asked again, and found that the first question had done it.
        pass
    else:
        assert await scene.token() is None
    try:
        await lease.release()
    except LeaseLost:
        assert await scene.token() is None


async def locks(scene: Scene, action: str) -> None:
    """All are listed, or it is Unknown."""
    lease = await scene.world.must_acquire(scene.direct())
    scene.plan(action)
    try:
        reports = await scene.client.locks("*")
    except OutcomeUnknown:
        pass
    else:
        assert [report.name for report in reports] == ["a"]
    await lease.release()


async def wait(scene: Scene, action: str) -> None:
    """Whatever happens on the way into the queue, who waits gets the lock."""
    lease = await scene.world.must_acquire(scene.direct())
    scene.plan(action, b"SUBSCRIBE")
    waiter = scene.world.spawn(outwait, scene)
    await scene.world.wait_until(scene.faults[0].struck.is_set, PATIENCE)
    await lease.release()
    token = await waiter.join()
    assert token is None or token > lease.token


async def outwait(scene: Scene) -> int | None:
    try:
        lease = await scene.world.must_acquire(scene.lock(), PATIENCE)
    except OutcomeUnknown:
        return None
    await lease.release()
    return lease.token


STORIES: list[Story] = [
    *(acquire, try_once, extend, renew, release, release_to_a_waiter),
    *(break_one_grant, locks, wait),
]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_fault(story: Story, action: str, colour: str, server: Redis, tmp_path: Path) -> None:
    play(server, colour, tmp_path, lambda scene: story(scene, action))


async def nested(scene: Scene) -> None:
    lock = scene.lock()
    lease = await scene.world.must_acquire(lock)
    scene.proxy.silence()
    inner = await lock.acquire(0)
    assert inner is not None
    assert inner.token == lease.token
    await inner.release()
    scene.proxy.heal()
    assert await scene.token() == lease.token
    await lease.release()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_nested_acquire_asks_nobody(colour: str, server: Redis, tmp_path: Path) -> None:
    play(server, colour, tmp_path, nested)


async def handed_to_the_deaf(scene: Scene) -> None:
    """A waiter whose line went dead is handed the lock: the one behind waits a claim, no more."""
    lease = await scene.world.must_acquire(scene.direct())
    deaf = scene.world.spawn(outwait, scene)
    await scene.world.wait_for_waiters(scene.direct(), 1)
    behind = scene.world.spawn(take_and_give_back, scene)
    await scene.world.wait_for_waiters(scene.direct(), 2)
    scene.proxy.silence()
    await lease.release()
    assert await behind.join() > lease.token
    scene.proxy.heal()
    await deaf.join()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_deaf_waiter_delays_the_next_one_for_a_short_time(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    play(server, colour, tmp_path, handed_to_the_deaf)


async def released_in_a_partition(scene: Scene) -> None:
    """The release gets no reply; when the connection is back, the renewer releases the lock."""
    lease = await scene.world.must_acquire(scene.lock())
    scene.proxy.silence()
    with pytest.raises(LeaseLost) as told:
        await lease.release()
    assert isinstance(told.value.__cause__, OutcomeUnknown)
    scene.proxy.heal()


@pytest.mark.parametrize("colour", COLOURS)
def test_what_was_released_in_a_partition_is_free_after_it(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    play(server, colour, tmp_path, released_in_a_partition)
