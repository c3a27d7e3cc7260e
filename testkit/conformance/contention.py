"""A holder learns that others wait, and may yield."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import AcquireCancelled
from testkit.conformance.harness import TIMEOUT
from testkit.conformance.scenario import scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lease, Lock
    from testkit.conformance.harness import Harness

# Seconds. Where the store does not notify, a holder looks three times in a lease.
LEASE = 3.0
# With such a lease it looks only after more than a minute and a half.
LONG_LEASE, LOOKS_AFTER = 300.0, 90.0


async def _hold(lock: Lock) -> None:
    await (await lock.acquire(timeout=TIMEOUT)).release()


@scenario("has_queue")
async def holder_learns_that_another_client_waits(harness: Harness) -> None:
    """By the callback and by `contended`; when it releases, the waiter has the lock."""
    lease = await harness.must_acquire(harness.lock("a", lease=LEASE))
    called: list[Lease] = []
    assert not lease.contended
    lease.on_contended(called.append)
    await harness.pause(0.05)
    assert (called, lease.contended) == ([], False)
    waiting = harness.spawn(_hold, harness.client().lock("a"))
    await harness.wait_until(lambda: bool(called))
    assert lease.contended
    assert not lease.lost
    late: list[Lease] = []
    lease.on_contended(late.append)
    await harness.wait_until(lambda: bool(late))
    await lease.release()
    await waiting.join()
    assert (called, late, lease.contended) == ([lease], [lease], False)


@scenario("has_queue", "notifies_holder")
async def first_waiter_is_reported_before_the_next_look(harness: Harness) -> None:
    """Also when the holder has looked at the queue before, and found it empty."""
    lease = await harness.must_acquire(harness.lock("a", lease=LONG_LEASE))
    assert not lease.contended
    await harness.pause(0.5)
    waiting = harness.spawn(_hold, harness.client().lock("a"))
    await harness.wait_until(lambda: lease.contended, LOOKS_AFTER)
    await lease.release()
    await waiting.join()


@scenario("has_queue")
async def callback_comes_again_when_another_one_waits(harness: Harness) -> None:
    """After the first waiter has given up."""
    lock = harness.lock("a", lease=LEASE)
    lease = await harness.must_acquire(lock)
    called: list[Lease] = []
    lease.on_contended(called.append)

    async def told(times: int) -> None:
        await harness.wait_until(lambda: len(called) == times)

    for times in (1, 2):
        other = harness.client().lock("a")
        waiting = harness.spawn(_hold, other)
        await told(times)
        await harness.wait_for_waiters(lock, 1)
        assert other.cancel() == 1
        assert isinstance(await waiting.end(), AcquireCancelled)
        await harness.wait_until(lambda: not lease.contended)
    await lease.release()


@scenario("has_queue")
async def released_lease_is_told_nothing(harness: Harness) -> None:
    """Nor is one whose lock had no waiters."""
    lock, called = harness.lock("a", lease=LEASE), list[Any]()
    lease = await harness.must_acquire(lock)
    lease.on_contended(called.append)
    await lease.release()
    lease.on_contended(called.append)
    assert not lease.contended
    async with lock:
        waiting = harness.spawn(_hold, harness.client().lock("a"))
        await harness.wait_for_waiters(lock, 1)
    await waiting.join()
    assert called == []


@scenario("sharing", "has_queue")
async def reader_learns_that_a_writer_waits(harness: Harness) -> None:
    """Each of the readers."""
    shared = harness.client().rwlock("a")
    called: list[Lease] = []
    readers = [
        await harness.must_acquire(harness.client().rwlock("a", lease=LEASE).read) for _ in range(2)
    ]
    for reader in readers:
        reader.on_contended(called.append)
    writing = harness.spawn(_hold, shared.write)
    await harness.wait_until(lambda: len(called) == 2)
    for reader in readers:
        await reader.release()
    await writing.join()


@scenario("permits", "has_queue")
async def holder_of_a_permit_learns_that_another_client_waits(harness: Harness) -> None:
    """And may release it, although others hold permits, too."""
    semaphore = harness.first.semaphore("a", 2, lease=LEASE)
    called: list[Lease] = []
    yielding, other = await harness.must_acquire(semaphore), await harness.must_acquire(semaphore)
    yielding.on_contended(called.append)
    waiting = harness.spawn(_hold, harness.client().semaphore("a", 2))
    await harness.wait_until(lambda: called == [yielding])
    await yielding.release()
    await waiting.join()
    other.ensure()
    await other.release()


@scenario("has_queue")
async def leader_learns_of_a_candidate_and_resigns(harness: Harness) -> None:
    """So leadership passes on by choice."""
    election, led = harness.first.election("e", lease=LEASE), list[str]()
    candidate = harness.client().election("e", lease=LEASE)

    async def follow() -> None:
        async with candidate.lead():
            led.append("second")

    async with election.lead() as lease:
        called: list[Lease] = []
        lease.on_contended(called.append)
        following = harness.spawn(follow)
        await harness.wait_until(lambda: bool(called))
        assert led == []
        assert await election.resign()
    await following.join()
    assert led == ["second"]
