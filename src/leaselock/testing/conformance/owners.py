"""Only the holder releases, and a holder is one thread or one task, for as long as it lives."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from leaselock.errors import NotHeld
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.face import Lock
    from leaselock.testing.conformance.world import World


@scenario()
async def a_stranger_cannot_release(world: World) -> None:
    """NotHeld for everybody else, and nothing changes."""
    lock, foreign = world.lock("a"), world.client().lock("a")
    lease = await world.take(lock)
    before = await lock.holder()
    with raising(NotHeld, "a"):
        await foreign.release()
    with raising(NotHeld, "a"):
        await world.spawn(lock.release).join()
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
async def nobody_releases_what_is_free(world: World) -> None:
    """Neither before an acquire, nor twice after one."""
    lock = world.lock("a")
    with raising(NotHeld, "a"):
        await lock.release()
    lease = await world.take(lock)
    await lease.release()
    with raising(NotHeld, "a"):
        await lease.release()
    with raising(NotHeld, "a"):
        await lock.release()
    with raising(NotHeld, "a"):
        lease.ensure()
    assert (lease.remaining, lease.lost, lock.owned()) == (0.0, False, False)


@scenario()
async def a_late_second_release_hurts_nobody(world: World) -> None:
    """Who releases twice does not take the lock from the one who holds it by then."""
    lock, rival = world.lock("a"), world.client().lock("a")
    lease = await world.take(lock)
    await lease.release()
    other = await world.take(rival)
    with raising(NotHeld):
        await lease.release()
    assert await lock.acquire(timeout=0) is None
    other.ensure()
    await other.release()


@scenario()
async def another_may_release_the_lease_it_was_given(world: World) -> None:
    """A lease in hand is the right to release it, whichever thread or task it is in."""
    lock = world.lock("a")
    lease = await world.take(lock)
    await world.spawn(lease.release).join()
    assert not await lock.locked()
    assert not lock.owned()
    await (await world.take(lock, 0)).release()


@scenario("expiry")
async def a_dead_holder_of_a_living_client_is_not_renewed(world: World) -> None:
    """A thread or task that ends while it holds does not hold for ever."""
    lock = world.lock("a", lease=world.store.lease)
    await world.spawn(_take_and_end, world, lock).join()
    await (await world.take(lock)).release()


async def _take_and_end(world: World, lock: Lock) -> int:
    await world.take(lock)
    return threading.get_ident()


@scenario()
async def a_new_holder_is_not_taken_for_a_dead_one(world: World) -> None:
    """The interpreter gives a dead thread's number to a new one, which holds nothing by that."""
    lock = world.lock("a")
    dead = await world.spawn(_take_and_end, world, lock).join()
    for _ in range(50):
        # Its number mostly comes back with the very next thread.
        if await world.spawn(_expect_nothing, lock).join() == dead:
            break
    assert await lock.locked()


async def _expect_nothing(lock: Lock) -> int:
    assert not lock.owned()
    assert await lock.acquire(timeout=0) is None
    with raising(NotHeld):
        await lock.release()
    return threading.get_ident()
