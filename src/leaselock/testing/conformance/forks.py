"""A forked child holds nothing of its parent's, disturbs nothing of it, and may begin afresh."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost, NotHeld
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World


@scenario(alone=True)
async def a_forked_child_holds_nothing(world: World) -> None:
    """What it inherits is lost to it; its releases fail, and its end releases nothing."""
    lock = world.lock("a")
    lease = await world.take(lock)

    async def child() -> None:
        assert not lock.owned()
        assert lease.lost
        with raising(NotHeld, "a"):
            await lock.release()
        with raising(LeaseLost, "a"):
            await lease.release()

    await world.fork(child).end()
    lease.ensure()
    assert lock.owned()
    assert await world.client().lock("a").acquire(timeout=0) is None
    await lease.release()


@scenario("queue", "processes", alone=True)
async def a_forked_child_is_another_holder(world: World) -> None:
    """It waits for what its parent holds, by the inherited client, and gets it after it."""
    lock = world.lock("a")
    lease = await world.take(lock)

    async def child() -> None:
        assert await lock.acquire(timeout=0) is None
        async with lock as mine:
            assert mine.token > lease.token
            assert lock.owned()

    fork = world.fork(child)
    await world.until_waiting(lock, 1)
    lease.ensure()
    await lease.release()
    await fork.end()
    await (await world.take(lock, 0)).release()


@scenario(alone=True)
async def a_forked_child_can_use_the_client_afresh(world: World) -> None:
    """It takes, renews and releases; and so does the parent meanwhile."""
    await (await world.take(world.lock("before"))).release()

    async def child() -> None:
        mine = world.lock("of the child", lease=world.store.lease)
        lease = await world.take(mine)
        ended = world.now() + 3 * world.store.lease
        await world.until(lambda: world.now() >= ended)
        lease.ensure()
        await lease.release()
        await world.first.close()

    async def attempt(name: str) -> None:
        lease = await world.take(world.lock(name, lease=world.store.lease))
        await world.fork(child).end()
        lease.ensure()
        await lease.release()

    await world.best_of(5, attempt)


@scenario("queue", alone=True)
async def a_child_forked_in_the_midst_of_a_wait_is_no_waiter(world: World) -> None:
    """Threads or tasks of the parent that wait do not wait in the child; the parent's go on."""
    lock = world.lock("a")
    lease = await world.take(lock)
    waiting = world.spawn(_token, world.client().lock("a"))
    await world.until_waiting(lock, 1)

    async def child() -> None:
        await (await world.take(world.lock("b"))).release()

    await world.fork(child).end()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await waiting.join() > lease.token


async def _token(lock: Lock) -> int:
    async with lock as lease:
        return lease.token


@scenario("processes", "life", alone=True)
async def a_child_that_lives_on_keeps_nothing_held(world: World) -> None:
    """What the parent held and released is free, however long its child lives."""
    lease = await world.take(world.lock("a"))

    async def child() -> None:
        await world.until((world.folder / "end").exists)

    fork = world.fork(child)
    await world.first.close()
    assert lease.lost
    lock = world.client().lock("a")
    await (await world.take(lock, 1.0)).release()
    (world.folder / "end").touch()
    await fork.end()
