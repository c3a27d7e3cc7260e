"""A detached lease outlives its client until it expires, and is controlled by its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost, NotHeld
from testkit.conformance.child_process import send_to_parent
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness


@scenario("leases_expire", "detachable")
async def detached_lease_outlives_its_client(harness: Harness) -> None:
    """Another client adopts the lease by its token and releases it."""
    client, rival = harness.client(), harness.lock("a")
    lease = await harness.must_acquire(client.lock("a"))
    await lease.detach()
    await client.close()
    assert await harness.try_once(rival) is None
    adopted = await harness.first.adopt("a", lease.token)
    assert (adopted.name, adopted.token, adopted.lost) == ("a", lease.token, False)
    assert adopted.remaining > 20.0
    await adopted.release()
    await (await harness.must_acquire(rival, 0)).release()


@scenario("leases_expire", "detachable", "multiprocess")
async def detached_lease_outlives_its_process(harness: Harness) -> None:
    """After the process has ended, the token still holds the lock."""
    child = harness.process(detach)
    await child.end()
    await harness.wait_until(lambda: bool(child.words))
    lock = harness.lock("a")
    assert await harness.try_once(lock) is None
    adopted = await harness.first.adopt("a", int(child.words[0]))
    await adopted.release()
    assert not await lock.locked()


async def detach(harness: Harness) -> None:
    """In a process: acquire the lock, detach it, and send its token."""
    lease = await harness.must_acquire(harness.lock("a"))
    await lease.detach()
    send_to_parent(lease.token)


@scenario("leases_expire", "detachable")
async def detached_lease_expires(harness: Harness) -> None:
    """It is not renewed, even while its client lives."""

    async def attempt(name: str) -> None:
        lock = harness.lock(name, lease=harness.store.lease)
        lease = await harness.must_acquire(lock)
        await lease.detach()
        assert not lock.owned()
        following = await harness.must_acquire(harness.lock(name))
        assert following.token > lease.token
        await following.release()
        with raising(NotHeld, name):
            await harness.first.adopt(name, lease.token)

    await harness.retry_if_slow(5, attempt)


@scenario("detachable")
async def detached_lease_cannot_be_released_by_its_client(harness: Harness) -> None:
    """Releasing by the lease or by the lock raises NotHeld, and the lock stays held."""
    lock = harness.lock("a")
    lease = await harness.must_acquire(lock)
    await lease.detach()
    for release in (lease.release, lock.release):
        with raising(NotHeld, "a"):
            await release()
    assert not lease.lost
    assert await lock.locked()


@scenario("detachable")
async def only_a_detached_lease_can_be_adopted(harness: Harness) -> None:
    """A free lock, an attached lease and a wrong token raise NotHeld."""
    client = harness.client()
    with raising(NotHeld, "a"):
        await client.adopt("a", 1)
    lease = await harness.must_acquire(harness.lock("a"))
    with raising(NotHeld, "a"):
        await client.adopt("a", lease.token)
    lease.ensure()
    await lease.detach()
    with raising(NotHeld, "a"):
        await client.adopt("a", lease.token + 1)
    await (await client.adopt("a", lease.token)).release()


@scenario("leases_expire", "detachable")
async def adopted_lease_can_be_extended(harness: Harness) -> None:
    """Extending works until the lock is broken; then it raises LeaseLost."""
    lease = await harness.must_acquire(harness.lock("a", lease=5.0))
    await lease.detach()
    adopted = await harness.client().adopt("a", lease.token)
    await adopted.extend(20.0)
    assert adopted.remaining > 10.0
    await harness.first.break_lock("a")
    with raising(LeaseLost, "a"):
        await adopted.extend(20.0)


@scenario("leases_expire", "detachable")
async def lease_adopted_by_two_clients_ends_with_the_first_release(harness: Harness) -> None:
    """Both may extend it; the other one learns of the release by its next request."""
    detached = await harness.must_acquire(harness.lock("a"))
    await detached.detach()
    one, other = [await harness.client().adopt("a", detached.token) for _ in range(2)]
    assert one.token == other.token == detached.token
    await one.extend(20.0)
    await other.extend(20.0)
    await one.release()
    following = await harness.must_acquire(harness.lock("a"), 0)
    with raising(LeaseLost, "a"):
        await other.extend(20.0)
    with raising(LeaseLost, "a"):
        await other.release()
    following.ensure()
    await following.release()


@scenario("leases_expire", "detachable")
async def adopted_lease_outlives_its_adopter(harness: Harness) -> None:
    """Closing the adopting client does not release the lease."""
    lease = await harness.must_acquire(harness.lock("a"))
    await lease.detach()
    adopter = harness.client()
    await adopter.adopt("a", lease.token)
    await adopter.close()
    assert await harness.lock("a").locked()
    assert (await harness.first.adopt("a", lease.token)).remaining > 20.0


@scenario("detachable")
async def nested_acquisition_cannot_be_detached(harness: Harness) -> None:
    """NotHeld is raised, and both leases stay valid."""
    lock = harness.lock("a")
    async with lock as outer, lock as inner:
        with raising(NotHeld, "nested"):
            await inner.detach()
        outer.ensure()
