"""min_hold= and once: a lock that stays taken for a while after its release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import AcquireTimeout
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.world import World


@scenario()
async def a_store_that_cannot_do_it_says_so(world: World) -> None:
    """ValueError names the stores that can."""
    if world.store.min_hold:
        assert world.lock("a", min_hold=1.0).name == "a"
        with raising(ValueError, "min_hold", "local_handoffs"):
            world.lock("a", min_hold=1.0, local_handoffs=3)
        return
    with raising(ValueError, "min_hold", "SQLite"):
        world.lock("a", min_hold=1.0)
    with raising(ValueError, "min_hold", "SQLite"):
        await world.first.once("a", every=1.0)


@scenario("min_hold")
async def a_released_lock_cools_down(world: World) -> None:
    """It stays taken, by its last holder, and can be broken by force."""
    lock = world.lock("a", min_hold=60.0, label="nightly")
    lease = await world.must_acquire(lock)
    running = await lock.holder()
    assert running is not None
    assert not running.cooling_down
    await lease.release()
    assert not lease.lost
    other = world.client().lock("a", timeout=0)
    with raising(AcquireTimeout, "cooling down", "nightly"):
        async with other:
            pass
    holder = await other.holder()
    assert holder is not None
    assert holder.cooling_down
    assert holder.token == lease.token
    assert holder.remaining is not None
    assert 0.0 < holder.remaining <= 60.0
    (shown,) = await world.first.locks()
    assert shown.holder is not None
    assert shown.holder.cooling_down
    assert await world.first.break_lock("a", token=lease.token) is not None
    assert (await world.must_acquire(other, 0)).token > lease.token


@scenario("min_hold")
async def it_can_be_taken_when_the_time_has_passed(world: World) -> None:
    """The first waiter gets it then; a hold that was longer frees it at its release."""
    seconds = 0.3
    began = world.now()
    lock = world.lock("a", min_hold=seconds)
    await (await world.must_acquire(lock)).release()
    lease = await world.must_acquire(world.client().lock("a"))
    assert world.now() - began >= seconds - 0.01
    await lease.release()
    assert await lock.holder() is None


@scenario("min_hold")
async def a_run_longer_than_min_hold_frees_the_lock_at_its_end(world: World) -> None:
    """Then there is nothing to cool down."""
    lock = world.lock("a", min_hold=0.05)
    lease = await world.must_acquire(lock)
    await world.pause(0.1)
    await lease.release()
    assert await lock.holder() is None


@scenario("min_hold")
async def once_grants_once_per_period(world: World) -> None:
    """Also if the lease is released at once; others have their own names."""
    client = world.client()
    lease = await world.first.once("a", every=60.0)
    assert lease is not None
    assert await client.once("a", every=60.0) is None
    await lease.release()
    assert await client.once("a", every=60.0) is None
    assert await world.first.once("a", every=60.0) is None
    assert await client.once("b", every=60.0) is not None


@scenario("min_hold")
async def aligned_periods_end_with_the_clock(world: World) -> None:
    """A lock taken in the middle of a period is free when the next one begins."""
    for _ in range(2):
        lease = await world.first.once("a", every=0.2, align=True)
        if lease is None:
            continue
        holder = await world.lock("a").holder()
        assert holder is not None
        assert holder.remaining is not None
        await lease.release()
        cooling = await world.lock("a").holder()
        if cooling is not None:
            assert cooling.remaining is not None
            assert cooling.remaining <= 0.2
        await world.must_acquire(world.client().lock("a"))
        return
    raise AssertionError("a free lock was not granted")


@scenario("min_hold", "detachable")
async def an_adopted_lease_cools_down_too(world: World) -> None:
    """The store knows the time, whichever client releases; it cannot be adopted again."""
    lease = await world.must_acquire(world.lock("a", min_hold=60.0))
    await lease.detach()
    adopted = await world.client().adopt("a", lease.token)
    await adopted.release()
    holder = await world.lock("a").holder()
    assert holder is not None
    assert holder.cooling_down
