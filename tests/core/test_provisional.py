"""Provisional grants: the store keeps them for less than the lease until they are renewed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.claim_registry import CONFIRM_AFTER
from leaselock._core.client.events import LATE, Event
from leaselock._core.contract.backend import Grant, Renew, SetLifetime
from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore

LASTS = 2.0


def renewals(fixture: Fixture) -> int:
    """How many were sent."""
    return sum(isinstance(request, Renew) for request in fixture.store.seen)


def _fixture(lasts: float = LASTS) -> tuple[Fixture, Machine, ClientCore]:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    acquire = backend.acquire

    async def brief(*arguments: Any, **words: Any) -> object:
        reply = await acquire(*arguments, **words)
        return reply._replace(lasts=lasts) if isinstance(reply, Grant) else reply

    backend.acquire = brief
    return fixture, machine, service


def test_a_provisional_grant_is_valid_for_its_time_and_renewed_at_once() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        assert LASTS - 0.1 < handle.remaining() <= LASTS
        await Sleep(machine.now() + 0.1)
        assert handle.remaining() > 20.0

    heard: list[Event] = []
    service.listen(heard.append)
    fixture.do(machine, whole(), 10.0)
    assert renewals(fixture) == 1
    # It confirms the grant: a small part of the lease was left, and that is not late.
    (renewed,) = (event for event in heard if event.kind == "renewed")
    assert renewed.seconds > renewed.lease * LATE


def test_a_provisional_grant_that_ends_soon_is_not_renewed() -> None:
    """A contended lock is handed over and released again and again."""
    fixture, machine, service = _fixture()

    async def whole() -> None:
        mutex = mutex_of(service, lease=30.0)
        for _ in range(50):
            handle = await mutex.acquire(None)
            await Sleep(machine.now() + CONFIRM_AFTER / 2)
            await handle.release()

    fixture.do(machine, whole(), 10.0)
    assert renewals(fixture) == 0


def test_a_provisional_grant_without_a_renewal_is_lost_at_its_end() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        fixture.store.silent = (Renew,)
        granted = machine.now()
        while not handle.lost():
            await Sleep(machine.now() + 0.01)
        assert LASTS - 0.2 < machine.now() - granted <= LASTS + 0.01

    fixture.do(machine, whole(), 10.0)


def test_a_provisional_fixed_lease_is_extended_to_its_end_only() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=10.0, renew=False).acquire(None)
        assert handle is not None
        granted = machine.now()
        await Sleep(granted + 9.9)
        handle.ensure()
        await Sleep(granted + 10.1)
        with pytest.raises(LeaseLost, match="is over"):
            handle.ensure()

    fixture.do(machine, whole(), 20.0)
    lengths = [
        claim.lease for r in fixture.store.seen if isinstance(r, Renew) for claim in r.claims
    ]
    assert len(lengths) == 1
    assert 9.5 < lengths[0] < 10.0


def test_a_detached_provisional_grant_has_its_whole_lease() -> None:
    fixture, machine, service = _fixture(lasts=20.0)  # so the renewer has nothing to do yet

    async def whole() -> None:
        handle = await mutex_of(service, lease=30.0).acquire(None)
        assert handle is not None
        await handle.detach()

    fixture.do(machine, whole(), 5.0)
    asked = [type(r) for r in fixture.store.seen if isinstance(r, Renew | SetLifetime)]
    assert [kind.__name__ for kind in asked] == ["Renew", "SetLifetime"]


def test_the_renewer_stops_when_an_extension_replaces_a_lost_renewal() -> None:
    fixture, machine, service = _fixture()

    async def whole() -> None:
        handle = await mutex_of(service, lease=10.0, renew=False).acquire(None)
        assert handle is not None
        fixture.store.silent = (Renew,)
        await Sleep(machine.now() + LASTS / 2 + 0.01)
        fixture.store.silent = ()
        await handle.extend(20.0)
        await Sleep(machine.now() + 15.0)
        handle.ensure()

    fixture.do(machine, whole(), 18.0)
    assert fixture.simulator.steps < 100
