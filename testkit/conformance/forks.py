"""A forked child holds none of its parent's locks and can use the inherited client."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost, NotHeld
from testkit.conformance.queues import LONG
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness


@scenario(alone=True)
async def forked_child_holds_nothing(harness: Harness) -> None:
    """Inherited leases are lost in the child; it cannot release, and its exit releases nothing."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)

    async def child() -> None:
        assert not lock.owned()
        assert lease.lost
        with raising(NotHeld, "a"):
            await lock.release()
        with raising(LeaseLost, "a"):
            await lease.release()

    await harness.fork(child).end()
    lease.ensure()
    assert lock.owned()
    assert await harness.try_once(harness.client().lock("a")) is None
    await lease.release()


@scenario("has_queue", "multiprocess", alone=True)
async def forked_child_is_another_owner(harness: Harness) -> None:
    """With the inherited client, the child waits for its parent's lock and then acquires it."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)

    async def child() -> None:
        assert await harness.try_once(lock) is None
        async with lock as mine:
            assert mine.token > lease.token
            assert lock.owned()

    fork = harness.fork(child)
    await harness.wait_for_waiters(lock, 1)
    lease.ensure()
    await lease.release()
    await fork.end()
    await (await harness.must_acquire(lock, 0)).release()


@scenario(alone=True)
async def forked_child_can_use_the_inherited_client(harness: Harness) -> None:
    """The child acquires, renews and releases, and the parent continues to."""
    await (await harness.must_acquire(harness.lock("before"))).release()

    async def child() -> None:
        mine = harness.lock("of the child", lease=harness.store.lease)
        lease = await harness.must_acquire(mine)
        ended = harness.now() + 3 * harness.store.lease
        await harness.wait_until(lambda: harness.now() >= ended)
        lease.ensure()
        await lease.release()
        await harness.first.close()

    async def attempt(name: str) -> None:
        lease = await harness.must_acquire(harness.lock(name, lease=harness.store.lease))
        await harness.fork(child).end()
        lease.ensure()
        await lease.release()

    await harness.retry_if_slow(5, attempt)


@scenario("has_queue", alone=True)
async def waiters_of_the_parent_do_not_wait_in_the_child(harness: Harness) -> None:
    """Threads or tasks that wait in the parent do not wait in the child; the parent's go on."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)
    waiting = harness.spawn(_token, harness.client().lock("a"))
    await harness.wait_for_waiters(lock, 1)

    async def child() -> None:
        await (await harness.must_acquire(harness.lock("b"))).release()

    await harness.fork(child).end()
    assert len(await lock.waiters()) == 1
    await lease.release()
    assert await waiting.join() > lease.token


async def _token(lock: Lock) -> int:
    async with lock as lease:
        return lease.token


@scenario("multiprocess", "detects_death", alone=True)
async def living_child_keeps_no_lock_of_its_parent(harness: Harness) -> None:
    """A lock released by the parent is free, however long its child lives."""
    lease = await harness.must_acquire(harness.lock("a"))

    async def child() -> None:
        await harness.wait_until((harness.folder / "end").exists)

    fork = harness.fork(child)
    await harness.first.close()
    assert lease.lost
    lock = harness.client().lock("a")
    await (await harness.must_acquire(lock, LONG / 2)).release()
    (harness.folder / "end").touch()
    await fork.end()
