"""The numbers of a semaphore's permits: unique among the holds, and the lowest that are free."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.conformance.harness import TIMEOUT, NotInTime
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Client, Lease, Semaphore
    from testkit.conformance.harness import Harness

# How often each of the contending users acquires.
ROUNDS = 4


def _numbered(client: Client, permits: int | None = 3, name: str = "a") -> Semaphore:
    return client.semaphore(name, permits, numbered=True)


@scenario("permits")
async def each_permit_has_the_lowest_number_that_is_free(harness: Harness) -> None:
    """Of all clients together; the holders are shown with their numbers."""
    mine, theirs = _numbered(harness.first, 4), _numbered(harness.client(), 4)
    zero = await harness.must_acquire(mine, 0)
    pair = await theirs.acquire(2, timeout=TIMEOUT)
    three = await harness.must_acquire(mine, 0)
    assert (zero.slot, [*zero.slots]) == (0, [0])
    assert (pair.slot, [*pair.slots]) == (1, [1, 2])
    assert three.slot == 3
    assert [[*holder.slots] for holder in await mine.holders()] == [[0], [1, 2], [3]]
    await zero.release()
    await three.release()
    again = await mine.acquire(2, timeout=TIMEOUT)
    assert [*again.slots] == [0, 3]
    await again.release()
    await pair.release()


@scenario("permits")
async def permits_without_numbers_are_beside_those_with(harness: Harness) -> None:
    """They take no number, and count among the permits. A lock has none either."""
    plain = await harness.must_acquire(harness.client().semaphore("a", permits=3), 0)
    numbered = await harness.must_acquire(_numbered(harness.first), 0)
    assert ([*plain.slots], [*numbered.slots]) == ([], [0])
    with raising(ValueError, "'a'", "numbered=True"):
        assert plain.slot
    other = await harness.must_acquire(_numbered(harness.client(), None), 0)
    assert other.slot == 1
    assert await harness.try_once(_numbered(harness.first)) is None
    async with harness.lock("b") as lease:
        assert not lease.slots


@scenario("permits", "has_queue")
async def waiter_gets_the_number_that_was_released(harness: Harness) -> None:
    """It was granted by another client's release."""
    mine, theirs = _numbered(harness.first), _numbered(harness.client())
    leases = [await harness.must_acquire(mine, 0) for _ in range(3)]
    waiting = harness.spawn(_acquire, theirs)
    await harness.wait_for_waiters(mine, 1)
    await leases[1].release()
    lease = await waiting.join()
    assert lease.slot == 1
    assert sorted(slot for h in await mine.holders() for slot in h.slots) == [0, 1, 2]


async def _acquire(semaphore: Semaphore) -> Lease:
    return await semaphore.acquire(timeout=TIMEOUT)


@scenario("permits", "has_queue")
async def no_number_is_given_twice(harness: Harness) -> None:
    """While many acquire and release, two never have one number."""
    present: set[int] = set()
    users = 5

    async def use(client: Client, permits: int) -> None:
        semaphore = _numbered(client)
        for _ in range(ROUNDS):
            lease = await semaphore.acquire(permits, timeout=TIMEOUT)
            taken = set(lease.slots)
            assert len(taken) == permits
            assert taken <= {0, 1, 2}
            assert not taken & present, f"{taken & present} of {taken} are held by another"
            present.update(taken)
            await harness.pause(0.002)
            present.difference_update(taken)
            await lease.release()

    peers = [harness.spawn(use, harness.client(), 1 + (n == 0)) for n in range(users)]
    for peer in peers:
        await peer.join()


@scenario("permits", "leases_expire")
async def number_is_free_when_its_hold_has_ended(harness: Harness) -> None:
    """Not before: a holder that does not renew keeps it for its lease."""

    async def attempt(name: str) -> None:
        lease = harness.store.lease
        fixed = harness.first.semaphore(name, permits=2, numbered=True, lease=lease, renew=False)
        ending = await harness.must_acquire(fixed, 0)
        other = await harness.must_acquire(_numbered(harness.client(), 2, name), 0)
        if ending.lost:
            raise NotInTime("its lease ended before the other one was acquired")
        third = await harness.must_acquire(_numbered(harness.client(), 2, name))
        assert (ending.slot, other.slot, third.slot) == (0, 1, 0)
        assert ending.lost

    await harness.retry_if_slow(5, attempt)


@scenario("permits")
async def number_above_a_smaller_limit_stays_until_its_release(harness: Harness) -> None:
    """The next grants have the lowest numbers again."""
    semaphore = _numbered(harness.first, 3)
    leases = [await harness.must_acquire(semaphore, 0) for _ in range(3)]
    await semaphore.resize(1)
    await leases[0].release()
    await leases[1].release()
    assert leases[2].slot == 2
    assert [[*holder.slots] for holder in await semaphore.holders()] == [[2]]
    assert await harness.try_once(semaphore) is None
    await leases[2].release()
    assert (await harness.must_acquire(semaphore, 0)).slot == 0


@scenario("permits", "leases_expire", "detachable")
async def adopted_lease_has_its_number(harness: Harness) -> None:
    """No other holder gets it meanwhile."""
    client = harness.client()
    first = await harness.must_acquire(_numbered(harness.first), 0)
    detached = await harness.must_acquire(_numbered(client), 0)
    await detached.detach()
    await client.close()
    await first.release()
    other = await harness.must_acquire(_numbered(harness.first), 0)
    adopted = await harness.client().adopt("a", detached.token)
    assert (other.slot, adopted.slot) == (0, 1)
    await adopted.release()


@scenario("permits")
async def too_many_permits_cannot_be_numbered(harness: Harness) -> None:
    """Each holder stores its numbers."""
    with raising(ValueError, "numbered", "1000"):
        _numbered(harness.first, 1001)
    with raising(ValueError, "1000", "numbered"):
        await _numbered(harness.first, None).acquire(1001)
