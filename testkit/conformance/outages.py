"""on_outage=: what an acquire does while the store cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import AcquireTimeout, NotHeld, StoreUnreachable
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from leaselock import Event
    from testkit.conformance.world import World

NOT_REACHED = "out of reach"
PATIENT: dict[str, Any] = {"on_outage": "wait", "outage_timeout": 3600.0}


@scenario()
async def an_outage_is_an_error_unless_the_caller_says_otherwise(world: World) -> None:
    """At once, where the request was certainly not sent; nothing is held then."""
    client = world.client()
    outage = world.outage(client)
    lock = client.lock("a")
    with raising(StoreUnreachable, NOT_REACHED):
        await lock.acquire()
    assert outage.failed == 1
    assert await world.lock("a").holder() is None


@scenario()
async def an_acquire_waits_for_the_store(world: World) -> None:
    """Also one that does not wait for other owners. It gets a lease as any other."""
    client = world.client()
    outage = world.outage(client)
    lock = client.lock("a", **PATIENT)
    attempt = world.spawn(lock.try_acquire)
    await world.wait_until(lambda: outage.failed > 2)
    assert not attempt.ended()
    outage.over = True
    lease = await attempt.join()
    assert lease is not None
    assert (lease.unlocked, lease.token > 0) == (False, True)
    await lease.release()


@scenario()
async def an_acquire_waits_no_longer_than_it_was_told(world: World) -> None:
    """Then the error is raised; the lock can be acquired after the outage."""
    client = world.client()
    outage = world.outage(client)
    lock = client.lock("a", on_outage="wait", outage_timeout=0.05)
    began = world.now()
    with raising(StoreUnreachable, NOT_REACHED):
        await lock.acquire()
    assert world.now() - began >= 0.05
    assert outage.failed > 1
    outage.over = True
    await (await world.must_acquire(lock)).release()


@scenario()
async def a_caller_goes_on_without_the_lock(world: World) -> None:
    """It excludes nobody, and has a token that no resource accepts. The event says why."""
    client = world.client()
    outage = world.outage(client)
    events: list[Event] = []
    client.on_event(events.append)
    lock = client.lock("a", on_outage="unlocked")
    lease = await lock.acquire()
    other = await world.must_acquire(world.lock("a"), 0)
    assert (lease.unlocked, lease.token, lease.lost, lock.owned()) == (True, 0, False, False)
    lease.ensure()
    await lease.extend(60.0)
    assert not await lease.make_inheritable()
    with raising(NotHeld, "not locked"):
        await lease.detach()
    # The inner lock is one that its caller did not allow to be missing.
    with raising(StoreUnreachable, NOT_REACHED):
        await client.lock("a").acquire()
    await lease.release()
    with raising(NotHeld, "released"):
        lease.ensure()
    other.ensure()
    assert [(e.kind, e.name) for e in events if e.kind == "unlocked"] == [("unlocked", "a")]
    assert all(NOT_REACHED in event.reason for event in events if event.kind == "unlocked")
    await other.release()
    outage.over = True
    later = await world.must_acquire(lock)
    assert not later.unlocked
    await later.release()


@scenario()
async def a_body_goes_on_without_the_lock(world: World) -> None:
    """In a `with`, under a decorator, and in a group; an exception of the body is its own."""
    client = world.client()
    world.outage(client)
    lock = client.lock("a", on_outage="unlocked")
    with raising(KeyError, "own"):
        async with lock as lease:
            assert lease.unlocked
            raise KeyError("own")
    async with client.lock_all([lock, client.lock("b", on_outage="unlocked")]) as leases:
        assert [lease.unlocked for lease in leases.leases] == [True, True]
        leases.ensure()


@scenario("sharing", "permits")
async def readers_writers_and_permits_have_the_same_policies(world: World) -> None:
    """Each side of a read/write lock, a semaphore, and the names of a group."""
    client = world.client()
    outage = world.outage(client)
    catalog = client.rwlock("a", on_outage="unlocked")
    slots = client.semaphore("b", 2, on_outage="unlocked")
    for lock in (catalog.read, catalog.write, slots):
        async with lock as lease:
            assert lease.unlocked
            assert not lock.owned()
    async with client.lock_all(["c", "d"], on_outage="unlocked") as leases:
        assert all(lease.unlocked for lease in leases.leases)
    waiting = client.rwlock("a", **PATIENT).read
    attempts = [world.spawn(waiting.try_acquire)]
    attempts += [world.spawn(client.semaphore("b", 2, **PATIENT).try_acquire)]
    before = outage.failed
    await world.wait_until(lambda: outage.failed > before + 4)
    outage.over = True
    for attempt in attempts:
        granted = await attempt.join()
        assert granted is not None
        assert not granted.unlocked
        await granted.release()


@scenario()
async def a_leader_outlives_an_outage_of_the_store(world: World) -> None:
    """`run` waits for the store, and says so once."""
    client = world.client()
    outage = world.outage(client)
    kinds: list[str] = []
    client.on_event(lambda event: kinds.append(event.kind))

    async def lead(lease: Any) -> int:
        token: int = lease.token
        return token

    election = client.election("a")
    with raising(StoreUnreachable, NOT_REACHED):
        async with election.lead():
            pass
    running = world.spawn(election.run, lead)
    before = outage.failed
    await world.wait_until(lambda: outage.failed > before + 2)
    outage.over = True
    assert await running.join()
    assert kinds.count("outage") == 1


@scenario("min_hold")
async def once_goes_on_without_the_lock(world: World) -> None:
    """Each call of the period, for nothing remembers the others."""
    client = world.client()
    world.outage(client)
    for _ in range(2):
        lease = await client.once("a", every=60.0, on_outage="unlocked")
        assert lease is not None
        assert lease.unlocked
        await lease.release()


@scenario()
async def a_store_that_answers_is_obeyed(world: World) -> None:
    """A lock that another owner holds is busy."""
    await world.must_acquire(world.lock("a"))
    lock = world.client().lock("a", on_outage="unlocked", outage_timeout=60.0)
    with raising(AcquireTimeout, "a"):
        await lock.acquire(timeout=0)


@scenario()
async def a_policy_is_one_of_three(world: World) -> None:
    """To wait for a store without a limit must be said."""
    for options in (
        {"on_outage": "ignore"},
        {"on_outage": None},
        {"on_outage": "wait"},
        {"outage_timeout": 5.0},
        {"on_outage": "wait", "outage_timeout": -1.0},
    ):
        with raising(ValueError, "outage"):
            world.lock("a", **options)
    assert world.lock("a", on_outage="wait", outage_timeout=float("inf")).name == "a"
