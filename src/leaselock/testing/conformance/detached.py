"""A detached lease outlives its client, for its length, and goes on with whoever has its token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost, NotHeld
from leaselock.testing.conformance.child import say
from leaselock.testing.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock.testing.conformance.world import World


@scenario("expiry", "detach")
async def a_detached_lease_outlives_its_client(world: World) -> None:
    """It is adopted by its token, and released by the adopter."""
    client, rival = world.client(), world.lock("a")
    lease = await world.take(client.lock("a"))
    await lease.detach()
    await client.close()
    assert await rival.acquire(timeout=0) is None
    adopted = await world.first.adopt("a", lease.token)
    assert (adopted.name, adopted.token, adopted.lost) == ("a", lease.token, False)
    assert adopted.remaining > 20.0
    await adopted.release()
    await (await world.take(rival, 0)).release()


@scenario("expiry", "detach", "processes")
async def a_detached_lease_outlives_its_process(world: World) -> None:
    """The process has ended, and its token still holds the lock."""
    child = world.process(detach)
    await child.end()
    await world.until(lambda: bool(child.words))
    lock = world.lock("a")
    assert await lock.acquire(timeout=0) is None
    adopted = await world.first.adopt("a", int(child.words[0]))
    await adopted.release()
    assert not await lock.locked()


async def detach(world: World) -> None:
    """In a process: take the lock, let it go on without us, and say its token."""
    lease = await world.take(world.lock("a"))
    await lease.detach()
    say(lease.token)


@scenario("expiry", "detach")
async def a_detached_lease_runs_out(world: World) -> None:
    """Nobody renews it, however long its client lives."""
    lock = world.lock("a", lease=world.store.lease)
    lease = await world.take(lock)
    await lease.detach()
    assert not lock.owned()
    following = await world.take(lock)
    assert following.token > lease.token
    await following.release()
    with raising(NotHeld, "a"):
        await world.first.adopt("a", lease.token)


@scenario("detach")
async def a_detached_lease_is_not_ours_to_release(world: World) -> None:
    """By the old lease or by the lock: NotHeld, and it stays held."""
    lock = world.lock("a")
    lease = await world.take(lock)
    await lease.detach()
    for release in (lease.release, lock.release):
        with raising(NotHeld, "a"):
            await release()
    assert not lease.lost
    assert await lock.locked()


@scenario("expiry", "detach")
async def only_what_is_detached_is_adopted(world: World) -> None:
    """Not a free lock, not one that its holder still has, not with another token."""
    client = world.client()
    with raising(NotHeld, "a"):
        await client.adopt("a", 1)
    lease = await world.take(world.lock("a"))
    with raising(NotHeld, "a"):
        await client.adopt("a", lease.token)
    lease.ensure()
    await lease.detach()
    with raising(NotHeld, "a"):
        await client.adopt("a", lease.token + 1 + world.store.local_handoffs)
    await (await client.adopt("a", lease.token)).release()


@scenario("expiry", "detach")
async def an_adopted_lease_is_extended(world: World) -> None:
    """It is good for as long as the adopter says, and is lost when that has passed."""
    lease = await world.take(world.lock("a", lease=5.0))
    await lease.detach()
    adopted = await world.client().adopt("a", lease.token)
    await adopted.extend(20.0)
    assert adopted.remaining > 10.0
    await world.first.break_lock("a")
    with raising(LeaseLost, "a"):
        await adopted.extend(20.0)


@scenario("expiry", "detach")
async def adopting_does_not_tie_it_again(world: World) -> None:
    """The adopter's end ends nothing: the lease still is what counts."""
    lease = await world.take(world.lock("a"))
    await lease.detach()
    adopter = world.client()
    await adopter.adopt("a", lease.token)
    await adopter.close()
    assert await world.lock("a").locked()
    assert (await world.first.adopt("a", lease.token)).remaining > 20.0


@scenario("detach")
async def a_nested_acquisition_cannot_be_detached(world: World) -> None:
    """NotHeld, and both go on."""
    lock = world.lock("a")
    async with lock as outer, lock as inner:
        with raising(NotHeld, "nested"):
            await inner.detach()
        outer.ensure()
