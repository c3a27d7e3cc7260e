"""Each operation with each fault: a request or reply lost or late, and the connection cut.

Invariants: the answer is right, or it is `OutcomeUnknown`. Afterwards no hold without an owner is
left, even when the request arrives after its client gave up and another one holds the lock
(hazards D1, D2).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from testkit.proxy import ACTIONS
from tests.backends.redis.fixture import LEASE, TIMEOUT, Fixture, play

from leaselock import LeaseLost, NotHeld, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from testkit.servers.redis import Redis

    Scenario = Callable[[Fixture, str], Coroutine[Any, Any, None]]

COLOURS = ("threads", pytest.param("asyncio", marks=pytest.mark.variant))
SHORT = 1.2


async def acquire(fixture: Fixture, action: str) -> None:
    """The lock is granted, according to the store as well, or the outcome is unknown."""
    fixture.plan(action)
    try:
        lease = await fixture.lock().try_acquire(timeout=TIMEOUT)
    except OutcomeUnknown:
        return
    assert lease is not None
    assert await fixture.token() == lease.token
    await lease.release()


async def try_once(fixture: Fixture, action: str) -> None:
    """The same without waiting; the lock is free, so None would be wrong."""
    fixture.plan(action)
    try:
        lease = await fixture.lock().try_acquire()
    except OutcomeUnknown:
        return
    assert lease is not None
    assert await fixture.token() == lease.token
    await lease.release()


async def extend(fixture: Fixture, action: str) -> None:
    """The lease is extended, or the outcome is unknown; it is held in any case."""
    lease = await fixture.harness.must_acquire(fixture.lock())
    fixture.plan(action)
    try:
        await lease.extend(2 * LEASE)
    except OutcomeUnknown:
        assert not lease.lost
    else:
        assert fixture.server.ask("PTTL", "lock:a") > 1000 * 1.5 * LEASE
    assert await fixture.token() == lease.token
    await lease.release()


async def renew(fixture: Fixture, action: str) -> None:
    """One failed renewal does not lose the lease: the next one is in time."""
    lease = await fixture.harness.must_acquire(fixture.lock(lease=SHORT * fixture.pace))
    fault = fixture.plan(action)
    await fixture.harness.wait_until(fault.injected.is_set, TIMEOUT)
    before = lease.remaining
    await fixture.harness.wait_until(lambda: lease.lost or lease.remaining > before, TIMEOUT)
    lease.ensure()
    assert await fixture.token() == lease.token
    await lease.release()


async def release(fixture: Fixture, action: str) -> None:
    """The lock is free, or LeaseLost reports that the release was not confirmed."""
    lease = await fixture.harness.must_acquire(fixture.lock())
    fixture.plan(action)
    try:
        await lease.release()
    except LeaseLost as error:
        if isinstance(error.__cause__, OutcomeUnknown):
            return
        raise
    assert await fixture.token() is None


async def release_to_a_waiter(fixture: Fixture, action: str) -> None:
    """A waiter without a proxy is granted the lock."""
    lease = await fixture.harness.must_acquire(fixture.lock())
    waiter = fixture.harness.spawn(take_and_release, fixture)
    await fixture.harness.wait_for_waiters(fixture.direct(), 1)
    fixture.plan(action)
    with contextlib.suppress(LeaseLost):
        await lease.release()
    assert await waiter.join() > lease.token


async def take_and_release(fixture: Fixture) -> int:
    lease = await fixture.harness.must_acquire(fixture.direct())
    await lease.release()
    return lease.token


async def break_one_grant(fixture: Fixture, action: str) -> None:
    """With a token, a forced release ends that grant or none, however late it arrives."""
    lease = await fixture.harness.must_acquire(fixture.direct())
    fixture.plan(action)
    try:
        await fixture.client.break_lock("a", token=lease.token)
    except (OutcomeUnknown, NotHeld):
        # NotHeld: the repeated request found that the first one had been executed.
        pass
    else:
        assert await fixture.token() is None
    try:
        await lease.release()
    except LeaseLost:
        assert await fixture.token() is None


async def locks(fixture: Fixture, action: str) -> None:
    """All locks are listed, or the outcome is unknown."""
    lease = await fixture.harness.must_acquire(fixture.direct())
    fixture.plan(action)
    try:
        reports = await fixture.client.locks("*")
    except OutcomeUnknown:
        pass
    else:
        assert [report.name for report in reports] == ["a"]
    await lease.release()


async def wait(fixture: Fixture, action: str) -> None:
    """Whatever happens to the subscription, the waiter is granted the lock."""
    lease = await fixture.harness.must_acquire(fixture.direct())
    fixture.plan(action, b"SUBSCRIBE")
    waiter = fixture.harness.spawn(outwait, fixture)
    await fixture.harness.wait_until(fixture.faults[0].injected.is_set, TIMEOUT)
    await lease.release()
    token = await waiter.join()
    assert token is None or token > lease.token


async def outwait(fixture: Fixture) -> int | None:
    try:
        lease = await fixture.harness.must_acquire(fixture.lock(), TIMEOUT)
    except OutcomeUnknown:
        return None
    await lease.release()
    return lease.token


SCENARIOS: list[Scenario] = [
    *(acquire, try_once, extend, renew, release, release_to_a_waiter),
    *(break_one_grant, locks, wait),
]


# Two of three, by turns, are in the second tier. The simulation plays all on the same text.
FAULTS = [
    pytest.param(
        scenario,
        action,
        marks=pytest.mark.variant if (n + m) % 3 else (),
        id=f"{scenario.__name__}-{action}",
    )
    for n, scenario in enumerate(SCENARIOS)
    for m, action in enumerate(ACTIONS)
]


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(("scenario", "action"), FAULTS)
def test_fault(scenario: Scenario, action: str, colour: str, server: Redis, tmp_path: Path) -> None:
    play(server, colour, tmp_path, lambda fixture: scenario(fixture, action))


async def nested(fixture: Fixture) -> None:
    lock = fixture.lock()
    lease = await fixture.harness.must_acquire(lock)
    fixture.proxy.silence()
    inner = await lock.acquire(timeout=0)
    assert inner.token == lease.token
    await inner.release()
    fixture.proxy.heal()
    assert await fixture.token() == lease.token
    await lease.release()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_nested_acquire_sends_no_request(colour: str, server: Redis, tmp_path: Path) -> None:
    play(server, colour, tmp_path, nested)


async def handed_to_a_disconnected_waiter(fixture: Fixture) -> None:
    """A disconnected waiter is handed the lock; the next one waits for CONFIRM_WITHIN at most."""
    lease = await fixture.harness.must_acquire(fixture.direct())
    disconnected = fixture.harness.spawn(outwait, fixture)
    await fixture.harness.wait_for_waiters(fixture.direct(), 1)
    behind = fixture.harness.spawn(take_and_release, fixture)
    await fixture.harness.wait_for_waiters(fixture.direct(), 2)
    fixture.proxy.silence()
    await lease.release()
    assert await behind.join() > lease.token
    fixture.proxy.heal()
    await disconnected.join()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_disconnected_waiter_delays_the_next_one_briefly(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    play(server, colour, tmp_path, handed_to_a_disconnected_waiter)


async def released_in_a_partition(fixture: Fixture) -> None:
    """The release gets no reply; when the connection is back, the renewer releases the lock."""
    lease = await fixture.harness.must_acquire(fixture.lock())
    fixture.proxy.silence()
    with pytest.raises(LeaseLost) as raised:
        await lease.release()
    assert isinstance(raised.value.__cause__, OutcomeUnknown)
    fixture.proxy.heal()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_release_during_a_partition_takes_effect_after_it(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    play(server, colour, tmp_path, released_in_a_partition)
