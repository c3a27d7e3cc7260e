"""min_hold= and once: a lock that stays taken for a while after its release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import AcquireTimeout, LimitMismatch
from testkit.conformance.scenario import raising, scenario
from testkit.conformance.world import TIMEOUT

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


@scenario("min_hold", "permits")
async def permits_are_granted_so_many_times_in_a_period(world: World) -> None:
    """However soon they are released; what is left of them cools down, with its number."""
    semaphore = world.first.semaphore("a", 2, min_hold=60.0, numbered=True)
    other = world.client().semaphore("a", 2, min_hold=60.0, numbered=True)
    first = await world.must_acquire(semaphore)
    await first.release()
    (kept,) = await other.holders()
    assert (kept.cooling_down, kept.token, [*kept.slots]) == (True, first.token, [0])
    assert kept.remaining is not None
    assert 0.0 < kept.remaining <= 60.1
    second = await world.must_acquire(other, 0)
    assert second.slot == 1
    await second.release()
    assert not second.lost
    with raising(AcquireTimeout, "cooling down"):
        await semaphore.acquire(timeout=0)
    assert await world.first.break_lock("a", token=first.token) is not None
    assert (await world.must_acquire(semaphore, 0)).slot == 0


@scenario("min_hold", "permits")
async def permit_can_be_taken_when_its_time_has_passed(world: World) -> None:
    """By waiters in the order of their arrival, and not before."""
    seconds, times = 0.3, 2
    semaphore = world.first.semaphore("a", times, min_hold=seconds)
    granted: list[float] = []

    async def use() -> None:
        lease = await semaphore.acquire(timeout=TIMEOUT)
        granted.append(world.now())
        await lease.release()

    began = world.now()
    peers = [world.spawn(use) for _ in range(3 * times)]
    for peer in peers:
        await peer.join()
    # Each grant after the first ones is one period after another one, as the store counts.
    assert len(granted) == 3 * times
    assert max(granted) - began >= 2 * seconds - 0.02


@scenario("min_hold", "permits")
async def longer_use_of_a_permit_frees_it_at_its_release(world: World) -> None:
    """Then there is nothing to cool down."""
    semaphore = world.first.semaphore("a", 2, min_hold=0.05)
    lease = await world.must_acquire(semaphore)
    await world.pause(0.1)
    await lease.release()
    assert await semaphore.holders() == []
    assert await semaphore.available() == 2


@scenario("min_hold", "permits", "leases_expire")
async def permit_of_a_dead_holder_stays_taken_for_its_time(world: World) -> None:
    """Its lease may end before."""
    client = world.client()
    short = client.semaphore("a", 1, min_hold=60.0, lease=world.store.lease, renew=False)
    lease = await world.must_acquire(short)
    await world.wait_until(lambda: lease.lost)
    other = world.first.semaphore("a", 1, min_hold=60.0)
    assert await world.try_once(other) is None
    (kept,) = await other.holders()
    assert kept.token == lease.token


@scenario("min_hold", "permits")
async def once_grants_so_many_times_per_period(world: World) -> None:
    """Every caller must state the same number."""
    client = world.client()
    leases = [await each.once("a", every=60.0, times=3) for each in (world.first, client, client)]
    tokens = {lease.token for lease in leases if lease is not None}
    assert len(tokens) == 3
    for lease in leases:
        assert lease is not None
        await lease.release()
    assert await client.once("a", every=60.0, times=3) is None
    with raising(LimitMismatch, "'a'", "3 permits"):
        await client.once("a", every=60.0, times=2)
    again = await client.once("b", every=0.2, times=2, align=True)
    assert again is not None
    await again.release()


@scenario("permits")
async def store_without_min_hold_names_those_that_have_it(world: World) -> None:
    """Before any request."""
    if world.store.min_hold:
        assert world.first.semaphore("a", 2, min_hold=1.0).name == "a"
        return
    with raising(ValueError, "min_hold", "SQLite"):
        world.first.semaphore("a", 2, min_hold=1.0)
