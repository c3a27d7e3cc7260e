"""A forked child holds none of its parent's locks and can use the inherited client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost, NotHeld
from testkit.conformance.queues import LONG
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.world import World


@scenario(alone=True)
async def forked_child_holds_nothing(world: World) -> None:
    """Inherited leases are lost in the child; it cannot release, and its exit releases nothing."""
    lock = world.lock("a")
    lease = await world.must_acquire(lock)

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
    assert await world.try_once(world.client().lock("a")) is None
    await lease.release()


@scenario("has_queue", "multiprocess", alone=True)
async def forked_child_is_another_owner(world: World) -> None:
    """With the inherited client, the child waits for its parent's lock and then acquires it."""
    lock = world.lock("a")
    lease = await world.must_acquire(lock)

    async def child() -> None:
        assert await world.try_once(lock) is None
        async with lock as mine:
            assert mine.token > lease.token
            assert lock.owned()

    fork = world.fork(child)
    await world.wait_for_waiters(lock, 1)
    lease.ensure()
    await lease.release()
    await fork.end()
    await (await world.must_acquire(lock, 0)).release()


@scenario(alone=True)
async def forked_child_can_use_the_inherited_client(world: World) -> None:
    """The child acquires, renews and releases, and the parent continues to."""
    await (await world.must_acquire(world.lock("before"))).release()

    async def child() -> None:
        mine = world.lock("of the child", lease=world.store.lease)
        lease = await world.must_acquire(mine)
        ended = world.now() + 3 * world.store.lease
        await world.wait_until(lambda: world.now() >= ended)
        lease.ensure()
        await lease.release()
        await world.first.close()

    async def attempt(name: str) -> None:
        lease = await world.must_acquire(world.lock(name, lease=world.store.lease))
        await world.fork(child).end()
        lease.ensure()
        await lease.release()

    await world.retry_if_slow(5, attempt)


@scenario("has_queue", alone=True)
async def waiters_of_the_parent_do_not_wait_in_the_child(world: World) -> None:
    """Threads or tasks that wait in the parent do not wait in the child; the parent's go on."""
    lock = world.lock("a")
    lease = await world.must_acquire(lock)
    waiting = world.spawn(_token, world.client().lock("a"))
    await world.wait_for_waiters(lock, 1)

    async def child() -> None:
        await (await world.must_acquire(world.lock("b"))).release()

    await world.fork(child).end()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await waiting.join() > lease.token


async def _token(lock: Lock) -> int:
    async with lock as lease:
        return lease.token


@scenario("multiprocess", "detects_death", alone=True)
async def living_child_keeps_no_lock_of_its_parent(world: World) -> None:
    """A lock released by the parent is free, however long its child lives."""
    lease = await world.must_acquire(world.lock("a"))

    async def child() -> None:
        await world.wait_until((world.folder / "end").exists)

    fork = world.fork(child)
    await world.first.close()
    assert lease.lost
    lock = world.client().lock("a")
    await (await world.must_acquire(lock, LONG / 2)).release()
    (world.folder / "end").touch()
    await fork.end()
