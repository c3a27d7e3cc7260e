"""Local hand-off between threads or tasks of one client, and turns for other clients."""

from __future__ import annotations

from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

from leaselock.errors import LeaseLost
from testkit.conformance.harness import NotInTime
from testkit.conformance.scenario import raising, scenario

if TYPE_CHECKING:
    from testkit.conformance.api_types import Lock
    from testkit.conformance.harness import Harness

MEMBERS, ROUNDS = 3, 60


@scenario("local_handoffs")
async def other_clients_get_their_turn(harness: Harness) -> None:
    """However many owners of one client want the lock, another client waits for at most the set
    number of grants.
    """

    async def attempt(name: str) -> None:
        lock, rival = harness.lock(name), harness.client().lock(name)
        granted: list[tuple[int, str]] = []
        async with lock:
            ours = [harness.spawn(_cycle, lock, granted, "ours") for _ in range(MEMBERS)]
            await harness.wait_for_waiters(lock, MEMBERS)
            other = harness.spawn(_cycle, rival, granted, "rival")
            await harness.wait_for_waiters(rival, 1)
        for error in [await member.end() for member in (*ours, other)]:
            if error is not None:
                raise error
        _check(harness, granted)

    await harness.retry_if_slow(3, attempt)


async def _cycle(lock: Lock, granted: list[tuple[int, str]], who: str) -> None:
    for _ in range(ROUNDS):
        async with lock as lease:
            granted.append((lease.token, who))


def _check(harness: Harness, granted: list[tuple[int, str]]) -> None:
    tokens = [token for token, _ in granted]
    assert tokens == sorted(set(tokens))
    places = [place for place, (_, who) in enumerate(granted) if who == "rival"]
    # The local turn in progress when the rival came, and one turn between any two of its own, if
    # the machine lets it request again at once.
    longest = max(places[0], *(after - before for before, after in pairwise(places)))
    if longest > 2 * (harness.store.local_handoffs + 1):
        raise NotInTime(f"the rival waited for {longest} grants of another client")


@scenario("local_handoffs")
async def handed_over_lease_is_renewed(harness: Harness) -> None:
    """A lease that was handed over locally is renewed for as long as its new owner holds it."""

    async def attempt(name: str) -> None:
        lock, length = harness.lock(name, lease=harness.store.lease), harness.store.lease
        async with lock:
            other = harness.spawn(_keep, harness, lock, 3 * length)
            await harness.wait_for_waiters(lock, 1)
        got = await harness.try_once(harness.client().lock(name), 1.5 * length)
        await other.join()
        assert got is None

    await harness.retry_if_slow(5, attempt)


async def _keep(harness: Harness, lock: Lock, seconds: float) -> None:
    async with lock as lease:
        await harness.pause(seconds)
        lease.ensure()


@scenario("local_handoffs")
async def broken_lock_is_not_handed_over(harness: Harness) -> None:
    """A local waiter behind a broken hold waits for the store."""
    lock, operator = harness.lock("a", lease=30.0), harness.client()
    lease = await harness.must_acquire(lock)
    other = harness.spawn(partial(lock.acquire, timeout=30.0))
    await harness.wait_for_waiters(lock, 1)
    await harness.first.break_lock("a", token=lease.token)
    rival = await harness.must_acquire(operator.lock("a"))
    with raising(LeaseLost, "a"):
        await lease.release()
    await rival.release()
    passed = await other.join()
    assert passed is not None
    assert passed.token > rival.token


@scenario("local_handoffs", "caches")
async def cached_lease_is_released_on_contention(harness: Harness) -> None:
    """A client keeps a cached lease, with a new token each time, until another client wants it."""
    lock, rival = harness.lock("a", lease=30.0, cached=True), harness.client().lock("a")
    tokens = []
    for _ in range(3):
        async with lock as lease:
            tokens.append(lease.token)
    assert tokens == list(range(tokens[0], tokens[0] + 3))
    asked = harness.now()
    async with rival as other:
        assert other.token > tokens[-1]
    harness.check_elapsed(asked, 10.0)
    async with lock as lease:
        assert lease.token > other.token


@scenario("local_handoffs", "caches")
async def close_releases_cached_leases(harness: Harness) -> None:
    """A closed client keeps no cached lease."""
    client = harness.client()
    async with client.lock("a", lease=60.0, cached=True):
        pass
    assert await harness.lock("a").locked()
    await client.close()
    async with harness.lock("a"):
        pass
