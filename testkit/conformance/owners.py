"""Only the owner releases, and an owner is one thread or one task, until it ends."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leaselock.errors import NotHeld
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness


@scenario()
async def only_the_owner_releases(harness: Harness) -> None:
    """NotHeld is raised for all others, and nothing changes."""
    lock, foreign = harness.lock("a"), harness.client().lock("a")
    lease = await harness.must_acquire(lock)
    before = await lock.holder()
    with raising(NotHeld, "a"):
        await foreign.release()
    with raising(NotHeld, "a"):
        await harness.spawn(lock.release).join()
    after = await lock.holder()
    assert before is not None
    assert after is not None
    assert before.token is not None
    assert (before.token, before.since) == (after.token, after.since)
    assert lock.owned()
    assert not foreign.owned()
    lease.ensure()
    await lock.release()


@scenario()
async def free_lock_cannot_be_released(harness: Harness) -> None:
    """Neither before an acquire nor twice after one."""
    lock = harness.lock("a")
    with raising(NotHeld, "a"):
        await lock.release()
    lease = await harness.must_acquire(lock)
    await lease.release()
    with raising(NotHeld, "a"):
        await lease.release()
    with raising(NotHeld, "a"):
        await lock.release()
    with raising(NotHeld, "a"):
        lease.ensure()
    assert (lease.remaining, lease.lost, lock.owned()) == (0.0, False, False)


@scenario()
async def second_release_does_not_free_the_next_holder(harness: Harness) -> None:
    """Releasing twice does not release the lock of the next holder."""
    lock, rival = harness.lock("a"), harness.client().lock("a")
    lease = await harness.must_acquire(lock)
    await lease.release()
    other = await harness.must_acquire(rival)
    with raising(NotHeld):
        await lease.release()
    assert await harness.try_once(lock) is None
    other.ensure()
    await other.release()


@scenario()
async def lease_may_be_released_by_another_thread_or_task(harness: Harness) -> None:
    """A lease object may be released by any thread or task that has it."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)
    await harness.spawn(lease.release).join()
    assert not await lock.locked()
    assert not lock.owned()
    await (await harness.must_acquire(lock, 0)).release()


@scenario("leases_expire")
async def ended_owner_is_not_renewed(harness: Harness) -> None:
    """The hold of a thread or task that has ended expires."""
    lock = harness.lock("a", lease=harness.store.lease)
    await harness.spawn(_take_and_end, harness, lock).join()
    await (await harness.must_acquire(lock)).release()


async def _take_and_end(harness: Harness, lock: Lock) -> int:
    await harness.must_acquire(lock)
    return threading.get_ident()


@scenario()
async def new_thread_does_not_inherit_the_hold_of_an_ended_one(harness: Harness) -> None:
    """A new thread with the same ident owns nothing."""
    lock = harness.lock("a")
    dead = await harness.spawn(_take_and_end, harness, lock).join()
    for _ in range(50):
        # Mostly the very next thread gets the same ident.
        if await harness.spawn(_expect_nothing, harness, lock).join() == dead:
            break
    assert await lock.locked()


async def _expect_nothing(harness: Harness, lock: Lock) -> int:
    assert not lock.owned()
    assert await harness.try_once(lock) is None
    with raising(NotHeld):
        await lock.release()
    return threading.get_ident()
