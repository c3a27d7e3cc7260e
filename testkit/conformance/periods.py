"""min_hold= and once: a lock that stays taken for a while after its release."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import AcquireTimeout, LeaseLost, LimitMismatch
from testkit.conformance.harness import TIMEOUT
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness


@scenario()
async def a_store_that_cannot_do_it_says_so(harness: Harness) -> None:
    """ValueError names the stores that can."""
    if harness.store.min_hold:
        assert harness.lock("a", min_hold=1.0).name == "a"
        return
    with raising(ValueError, "min_hold", "SQLite"):
        harness.lock("a", min_hold=1.0)
    with raising(ValueError, "min_hold", "SQLite"):
        await harness.first.once("a", every=1.0)


@scenario("min_hold")
async def a_released_lock_cools_down(harness: Harness) -> None:
    """It stays taken, by its last holder, and can be broken by force."""
    lock = harness.lock("a", min_hold=60.0, label="nightly")
    lease = await harness.must_acquire(lock)
    running = await lock.holder()
    assert running is not None
    assert not running.cooling_down
    await lease.release()
    assert not lease.lost
    other = harness.client().lock("a", timeout=0)
    with raising(AcquireTimeout, "cooling down", "nightly"):
        async with other:
            pass
    holder = await other.holder()
    assert holder is not None
    assert holder.cooling_down
    assert holder.token == lease.token
    assert holder.remaining is not None
    assert 0.0 < holder.remaining <= 60.0
    (shown,) = await harness.first.locks()
    assert shown.holder is not None
    assert shown.holder.cooling_down
    assert await harness.first.break_lock("a", token=lease.token) is not None
    assert (await harness.must_acquire(other, 0)).token > lease.token


@scenario("min_hold")
async def it_can_be_taken_when_the_time_has_passed(harness: Harness) -> None:
    """The first waiter gets it then; a hold that was longer frees it at its release."""
    seconds = 0.3
    began = harness.now()
    lock = harness.lock("a", min_hold=seconds)
    await (await harness.must_acquire(lock)).release()
    lease = await harness.must_acquire(harness.client().lock("a"))
    assert harness.now() - began >= seconds - 0.01
    await lease.release()
    assert await lock.holder() is None


@scenario("min_hold")
async def a_run_longer_than_min_hold_frees_the_lock_at_its_end(harness: Harness) -> None:
    """Then there is nothing to cool down."""
    lock = harness.lock("a", min_hold=0.05)
    lease = await harness.must_acquire(lock)
    await harness.pause(0.1)
    await lease.release()
    assert await lock.holder() is None


@scenario("min_hold")
async def once_grants_once_per_period(harness: Harness) -> None:
    """Also if the lease is released at once; others have their own names."""
    client = harness.client()
    lease = await harness.first.once("a", every=60.0)
    assert lease is not None
    assert await client.once("a", every=60.0) is None
    await lease.release()
    assert await client.once("a", every=60.0) is None
    assert await harness.first.once("a", every=60.0) is None
    assert await client.once("b", every=60.0) is not None


@scenario("min_hold")
async def aligned_periods_end_with_the_clock(harness: Harness) -> None:
    """A lock taken in the middle of a period is free when the next one begins."""
    for _ in range(2):
        lease = await harness.first.once("a", every=0.2, align=True)
        if lease is None:
            continue
        holder = await harness.lock("a").holder()
        assert holder is not None
        assert holder.remaining is not None
        await lease.release()
        cooling = await harness.lock("a").holder()
        if cooling is not None:
            assert cooling.remaining is not None
            assert cooling.remaining <= 0.2
        await harness.must_acquire(harness.client().lock("a"))
        return
    raise AssertionError("a free lock was not granted")


@scenario("min_hold", "detachable")
async def an_adopted_lease_cools_down_too(harness: Harness) -> None:
    """The store knows the time, whichever client releases; it cannot be adopted again."""
    lease = await harness.must_acquire(harness.lock("a", min_hold=60.0))
    await lease.detach()
    adopted = await harness.client().adopt("a", lease.token)
    await adopted.release()
    holder = await harness.lock("a").holder()
    assert holder is not None
    assert holder.cooling_down


@scenario("min_hold", "permits")
async def permits_are_granted_so_many_times_in_a_period(harness: Harness) -> None:
    """However soon they are released; what is left of them cools down, with its number."""
    semaphore = harness.first.semaphore("a", 2, min_hold=60.0, numbered=True)
    other = harness.client().semaphore("a", 2, min_hold=60.0, numbered=True)
    first = await harness.must_acquire(semaphore)
    await first.release()
    (kept,) = await other.holders()
    assert (kept.cooling_down, kept.token, [*kept.slots]) == (True, first.token, [0])
    assert kept.remaining is not None
    assert 0.0 < kept.remaining <= 60.1
    second = await harness.must_acquire(other, 0)
    assert second.slot == 1
    await second.release()
    assert not second.lost
    with raising(AcquireTimeout, "cooling down"):
        await semaphore.acquire(timeout=0)
    assert await harness.first.break_lock("a", token=first.token) is not None
    assert (await harness.must_acquire(semaphore, 0)).slot == 0


@scenario("min_hold", "permits")
async def permit_can_be_taken_when_its_time_has_passed(harness: Harness) -> None:
    """By waiters in the order of their arrival, and not before."""
    seconds, times = 0.3, 2
    semaphore = harness.first.semaphore("a", times, min_hold=seconds)
    granted: list[float] = []

    async def use() -> None:
        lease = await semaphore.acquire(timeout=TIMEOUT)
        granted.append(harness.now())
        await lease.release()

    began = harness.now()
    peers = [harness.spawn(use) for _ in range(3 * times)]
    for peer in peers:
        await peer.join()
    # Each grant after the first ones is one period after another one, as the store counts.
    assert len(granted) == 3 * times
    assert max(granted) - began >= 2 * seconds - 0.02


@scenario("min_hold", "permits")
async def longer_use_of_a_permit_frees_it_at_its_release(harness: Harness) -> None:
    """Then there is nothing to cool down."""
    semaphore = harness.first.semaphore("a", 2, min_hold=0.05)
    lease = await harness.must_acquire(semaphore)
    await harness.pause(0.1)
    await lease.release()
    assert await semaphore.holders() == []
    assert await semaphore.available() == 2


@scenario("min_hold", "permits", "leases_expire")
async def permit_of_a_dead_holder_stays_taken_for_its_time(harness: Harness) -> None:
    """Its lease may end before."""
    client = harness.client()
    short = client.semaphore("a", 1, min_hold=60.0, lease=harness.store.lease, renew=False)
    lease = await harness.must_acquire(short)
    await harness.wait_until(lambda: lease.lost)
    other = harness.first.semaphore("a", 1, min_hold=60.0)
    assert await harness.try_once(other) is None
    (kept,) = await other.holders()
    assert kept.token == lease.token


@scenario("min_hold", "permits")
async def once_grants_so_many_times_per_period(harness: Harness) -> None:
    """Every caller must state the same number."""
    client = harness.client()
    leases = [await each.once("a", every=60.0, times=3) for each in (harness.first, client, client)]
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
async def store_without_min_hold_names_those_that_have_it(harness: Harness) -> None:
    """Before any request."""
    if harness.store.min_hold:
        assert harness.first.semaphore("a", 2, min_hold=1.0).name == "a"
        return
    with raising(ValueError, "min_hold", "SQLite"):
        harness.first.semaphore("a", 2, min_hold=1.0)


@scenario("min_hold")
async def failed_work_gives_its_turn_back(harness: Harness) -> None:
    """With on_error="retry": by an exception, a release, or the end of the lease."""
    client, other = harness.client(), harness.client()
    how: dict[str, Any] = {"every": 60.0, "on_error": "retry"}
    lease = await client.once("a", **how)
    assert lease is not None
    assert await other.once("a", **how) is None
    with raising(KeyError):
        async with lease:
            raise KeyError("the work")
    lease = await other.once("a", **how)
    assert lease is not None
    await lease.release()
    assert await harness.lock("a").holder() is None
    # A caller that keeps the turn counts it from the grant on.
    kept = await client.once("a", every=60.0)
    assert kept is not None
    await kept.release()
    assert await other.once("a", **how) is None


@scenario("min_hold")
async def work_that_is_done_uses_up_its_turn(harness: Harness) -> None:
    """For the rest of a period that began with the grant, by whatever client."""
    lease = await harness.client().once("a", every=60.0, on_error="retry", label="nightly")
    assert lease is not None
    await harness.pause(0.1)
    async with lease:
        pass
    assert not lease.lost
    holder = await harness.lock("a").holder()
    assert holder is not None
    assert holder.cooling_down
    assert holder.label == "nightly"
    assert holder.remaining is not None
    assert 30.0 < holder.remaining < 61.0
    assert await harness.first.once("a", every=60.0) is None
    assert await harness.first.once("a", every=60.0, on_error="retry") is None
    with raising(ValueError, "'keep' or 'retry'"):
        await harness.first.once("a", every=60.0, on_error="again")  # type: ignore[arg-type]


@scenario("min_hold")
async def work_longer_than_its_period_uses_up_no_other(harness: Harness) -> None:
    """Neither the next one of the clock."""
    for name, align in (("a", False), ("b", True)):
        lease = await harness.first.once(name, every=0.3, align=align, on_error="retry")
        assert lease is not None
        async with lease:
            await harness.pause(0.4)
        assert not lease.lost
        assert await harness.lock(name).holder() is None


@scenario("min_hold")
async def aligned_turn_is_used_up_until_its_period_ends(harness: Harness) -> None:
    """By the store's clock."""
    lease = await harness.first.once("a", every=86400.0 * 30, align=True, on_error="retry")
    assert lease is not None
    async with lease:
        pass
    holder = await harness.lock("a").holder()
    assert holder is not None
    assert holder.remaining is not None
    assert 0.0 < holder.remaining <= 86400.0 * 31


@scenario("min_hold", "permits")
async def failed_work_gives_one_of_several_turns_back(harness: Harness) -> None:
    """Those of other callers are used up."""
    how: dict[str, Any] = {"every": 60.0, "times": 2, "on_error": "retry"}
    done = await harness.first.once("a", **how)
    assert done is not None
    async with done:
        pass
    for _ in range(2):
        failed = await harness.client().once("a", **how)
        assert failed is not None
        with raising(KeyError):
            async with failed:
                raise KeyError("the work")
    again = await harness.client().once("a", **how)
    assert again is not None
    async with again:
        pass
    assert await harness.client().once("a", **how) is None


@scenario("min_hold", "leases_expire")
async def turn_of_a_dead_process_is_given_back(harness: Harness) -> None:
    """When its lease ends."""
    how: dict[str, Any] = {"every": 60.0, "on_error": "retry", "lease": harness.store.lease}
    lease = await harness.client().once("a", max_hold=harness.store.lease, **how)
    assert lease is not None
    await harness.wait_until(lambda: lease.lost)
    with raising(LeaseLost):
        async with lease:
            pass
    lock = harness.lock("a")

    async def is_free() -> bool:
        return await lock.holder() is None

    # The client counts the lease from its request on, and the store from the grant on.
    await harness.wait_until(is_free)
    taken: list[Any] = []

    async def takes_the_turn() -> bool:
        # A store without a clock of its own lets a client take over what it has watched.
        taken.append(await harness.first.once("a", **how))
        return taken[-1] is not None

    await harness.wait_until(takes_the_turn)
    await taken[-1].release()
