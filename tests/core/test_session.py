"""Holds that end with a session: each proof is valid for at most half of its timeout."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_renewal import FullFixture
from tests.core.test_service import answer_by, mutex_of
from verification.simulation.simulator import Interrupted

from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.client.claim_registry import REPORT_TIME
from leaselock._core.contract.backend import Acquire, Release, Renew
from leaselock._core.contract.background import uninterrupted
from leaselock._core.contract.effects import FOREVER, Signal, Sleep, Wait
from leaselock.errors import LeaseLost, OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.contract.backend import Claim

SESSION = 4.0


def _fixture() -> tuple[FullFixture, Machine, ClientCore]:
    fixture = FullFixture()
    machine, service = fixture.client()
    service.contexts[None].registry.backend.capabilities = CAPABILITIES._replace(
        session_timeout=SESSION
    )
    return fixture, machine, service


def test_a_long_lease_is_valid_for_half_a_session_timeout_at_a_time() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        for _ in range(10):
            assert SESSION / 4 < handle.remaining() <= SESSION / 2
            await Sleep(machine.now() + 1.7)

    fixture.do(machine, whole(), 30.0)


def test_a_dropped_fixed_lease_lasts_as_long_as_was_said() -> None:
    """Its session is confirmed for half of its timeout only; its user counts on the whole lease."""
    fixture, machine, service = _fixture()

    async def drop() -> None:
        await mutex_of(service, lease=20.0, renew=False).acquire(None)

    with pytest.warns(ResourceWarning, match="was dropped while held"):
        fixture.do(machine, drop(), 10.0)
    assert fixture.store.table.entries["a"].holds
    fixture.simulator.play(fixture.simulator.time + 20.0)
    assert not fixture.store.table.entries["a"].holds


@pytest.mark.parametrize("fails", [False, True])
def test_an_interrupted_request_about_a_hold_that_it_would_end_goes_on(fails: bool) -> None:
    """An error of it concerns only a caller that still waits for it."""
    fixture, machine, service = _fixture()
    backend = service.contexts[None].registry.backend
    backend.capabilities = backend.capabilities._replace(fragile_holds=True)
    handle = fixture.do(machine, mutex_of(service, lease=3.0, renew=False).acquire(None), 0.5)
    carry_out: Any = backend.request
    begun, ended = Signal(), Signal()

    async def slow(request: Renew, until: float) -> Any:
        begun.set()
        await Sleep(machine.now() + 0.2)
        ended.set()
        if fails:
            raise OutcomeUnknown("no answer")
        return await carry_out(request, until)

    answer_by(backend, Renew, slow)
    extending = machine.start(handle.extend(3.5))
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert begun.is_set
    fixture.simulator.interrupt(extending)
    fixture.simulator.play(fixture.simulator.time + 0.5)
    assert isinstance(extending.error, Interrupted)
    assert ended.is_set
    with pytest.raises(OutcomeUnknown) if fails else nullcontext():
        fixture.do(machine, handle.extend(3.5), 0.5)
    handle.ensure()


def test_a_request_in_the_background_that_the_end_of_the_client_cuts_off_is_in_doubt() -> None:
    started: Any = uninterrupted(lambda: Sleep(FOREVER), "request")
    operation = started.send(None).operation
    operation.send(None)
    assert isinstance(started.send(None), Wait)
    operation.close()
    with pytest.raises(OutcomeUnknown, match="closed meanwhile"):
        started.send(True)


def test_a_fixed_lease_is_proven_repeatedly_until_its_end() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        began = machine.now()
        handle = await mutex_of(service, lease=10.0, renew=False).acquire(None)
        assert handle is not None
        await Sleep(began + 9.5)
        handle.ensure()
        await Sleep(began + 10.1)
        with pytest.raises(LeaseLost, match="is over"):
            handle.ensure()

    fixture.do(machine, whole(), 15.0)
    lengths = [
        claim.lease for r in fixture.store.seen if isinstance(r, Renew) for claim in r.claims
    ]
    assert len(lengths) > 5
    assert lengths == sorted(lengths, reverse=True)


def test_without_replies_the_hold_is_lost_before_its_session_can_end() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        fixture.store.silent = (Renew,)
        silent = machine.now()
        while not handle.lost():
            await Sleep(machine.now() + 0.01)
        assert SESSION / 4 < machine.now() - silent < SESSION / 2 + 0.05

    fixture.do(machine, whole(), 10.0)


@pytest.mark.parametrize(("away", "granted"), [(0.9, True), (1.1, False)])
def test_a_waiter_has_the_time_of_a_session_and_of_an_answer(away: float, granted: bool) -> None:
    """Its session may have ended, and it queues again in the next one, however short its lease."""
    fixture, machine, service = _fixture()
    holder, holding = fixture.client("holder")
    lease = fixture.do(holder, mutex_of(holding).acquire(None))
    run = fixture.begin(machine, mutex_of(service, lease=0.5).acquire(None))
    waits = len([r for r in fixture.store.seen if isinstance(r, Acquire)])
    fixture.store.silent = (Acquire,)
    while len([r for r in fixture.store.seen if isinstance(r, Acquire)]) == waits:
        fixture.simulator.play(fixture.simulator.time + 0.01)
    fixture.simulator.play(fixture.simulator.time + away * (SESSION + service.op_timeout))
    fixture.store.silent = ()
    fixture.do(holder, lease.release())
    assert (run.result is not None) == granted
    assert isinstance(run.error, OutcomeUnknown) != granted


def test_an_extension_ends_a_fixed_lease_later() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=3.0, renew=False).acquire(None)
        assert handle is not None
        await handle.extend(20.0)
        assert handle.remaining() <= SESSION / 2
        await Sleep(machine.now() + 15.0)
        handle.ensure()

    fixture.do(machine, whole(), 20.0)


def test_the_release_of_a_session_hold_is_repeated_without_limit() -> None:
    fixture, machine, service = _fixture()
    fixture.store.silent = (Acquire, Release)
    waiting = fixture.begin(machine, mutex_of(service, lease=1.0).try_acquire(0.2))
    fixture.simulator.play(60.0)
    assert waiting.ended
    (hold,) = service.contexts[None].registry.pending()
    assert hold.release_until == FOREVER
    fixture.store.silent = ()
    fixture.simulator.play(65.0)
    assert not service.contexts[None].registry.pending()


@pytest.mark.parametrize(
    ("takes", "full", "waits"),
    [(0.2, False, 0.2), (10.0, False, REPORT_TIME), (0.2, True, REPORT_TIME)],
)
def test_a_lost_hold_is_released_after_its_loss_was_reported(
    takes: float, full: bool, waits: float
) -> None:
    """The release lets the next owner in. A callback that takes long, or that cannot be started,
    does not keep it out.
    """
    fixture, machine, service = _fixture()
    registry = service.contexts[None].registry
    backend: Any = registry.backend
    release, released = backend.release, []

    async def recorded(claim: Claim, *, tombstone: bool, until: float) -> object:
        released.append(machine.now())
        return await release(claim, tombstone=tombstone, until=until)

    async def report(lease: object) -> None:
        await Sleep(machine.now() + takes)

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        handle.on_lost(report, handle, lambda handle: handle)
        backend.release = recorded
        await Sleep(machine.now() + 0.1)
        fixture.simulator.full = full
        lost = machine.now()
        backend.lose(handle.hold.claim.id, "its session does not answer")
        await Sleep(lost + 1.0)
        assert released == [pytest.approx(lost + waits, abs=0.01)]

    fixture.do(machine, whole())
