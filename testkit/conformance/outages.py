"""on_outage=: what an acquire does while the store cannot be reached."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.errors import AcquireTimeout, StoreUnreachable
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.harness import Harness

NOT_REACHED = "out of reach"
PATIENT: dict[str, Any] = {"on_outage": "wait", "outage_timeout": 3600.0}


@scenario()
async def an_outage_is_an_error_unless_the_caller_says_otherwise(harness: Harness) -> None:
    """At once, where the request was certainly not sent; nothing is held then."""
    client = harness.client()
    outage = harness.outage(client)
    lock = client.lock("a")
    with raising(StoreUnreachable, NOT_REACHED):
        await lock.acquire()
    assert outage.failed == 1
    assert await harness.lock("a").holder() is None


@scenario()
async def an_acquire_waits_for_the_store(harness: Harness) -> None:
    """Also one that does not wait for other owners. It gets a lease as any other."""
    client = harness.client()
    outage = harness.outage(client)
    lock = client.lock("a", **PATIENT)
    attempt = harness.spawn(lock.try_acquire)
    await harness.wait_until(lambda: outage.failed > 2)
    assert not attempt.ended()
    outage.over = True
    lease = await attempt.join()
    assert lease is not None
    assert lease.token > 0
    await lease.release()


@scenario()
async def an_acquire_waits_no_longer_than_it_was_told(harness: Harness) -> None:
    """Then the error is raised; the lock can be acquired after the outage."""
    client = harness.client()
    outage = harness.outage(client)
    lock = client.lock("a", on_outage="wait", outage_timeout=0.05)
    began = harness.now()
    with raising(StoreUnreachable, NOT_REACHED):
        await lock.acquire()
    assert harness.now() - began >= 0.05
    assert outage.failed > 1
    outage.over = True
    await (await harness.must_acquire(lock)).release()


@scenario("sharing", "permits")
async def readers_writers_and_permits_have_the_same_policies(harness: Harness) -> None:
    """Each side of a read/write lock, a semaphore, and the names of a group."""
    client = harness.client()
    outage = harness.outage(client)
    attempts: list[Any] = [
        harness.spawn(lock.try_acquire)
        for lock in (
            client.rwlock("a", **PATIENT).read,
            client.rwlock("b", **PATIENT).write,
            client.semaphore("c", 2, **PATIENT),
            client.lock_all(["d", "e"], **PATIENT),
        )
    ]
    before = outage.failed
    await harness.wait_until(lambda: outage.failed > before + 4)
    outage.over = True
    for attempt in attempts:
        granted = await attempt.join()
        assert granted is not None
        await granted.release()


@scenario()
async def a_leader_outlives_an_outage_of_the_store(harness: Harness) -> None:
    """`run` waits for the store, and says so once."""
    client = harness.client()
    outage = harness.outage(client)
    kinds: list[str] = []
    client.on_event(lambda event: kinds.append(event.kind))

    async def lead(lease: Any) -> int:
        token: int = lease.token
        return token

    election = client.election("a")
    with raising(StoreUnreachable, NOT_REACHED):
        async with election.lead():
            pass
    running = harness.spawn(election.run, lead)
    before = outage.failed
    await harness.wait_until(lambda: outage.failed > before + 2)
    outage.over = True
    assert await running.join()
    assert kinds.count("outage") == 1


@scenario()
async def a_store_that_answers_is_obeyed(harness: Harness) -> None:
    """A lock that another owner holds is busy."""
    await harness.must_acquire(harness.lock("a"))
    lock = harness.client().lock("a", on_outage="wait", outage_timeout=60.0)
    with raising(AcquireTimeout, "a"):
        await lock.acquire(timeout=0)


@scenario()
async def a_policy_is_one_of_two(harness: Harness) -> None:
    """To wait for a store without a limit must be said."""
    for options in (
        {"on_outage": "ignore"},
        {"on_outage": None},
        {"on_outage": "unlocked"},
        {"on_outage": "wait"},
        {"outage_timeout": 5.0},
        {"on_outage": "wait", "outage_timeout": -1.0},
    ):
        with raising(ValueError, "outage"):
            harness.lock("a", **options)
    assert harness.lock("a", on_outage="wait", outage_timeout=float("inf")).name == "a"
