"""Leases that are extended, and fixed leases that a nested acquisition prolongs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.lease_reference import no_operation
from leaselock._core.contract.backend import Renew
from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost, NotApplied, NotHeld, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from leaselock._core.client.lease_handle import LeaseHandle

FIXED = 3.0


def lengths(fixture: Fixture) -> list[float]:
    """The lengths of the leases that the store was asked for again."""
    return [claim.lease for r in fixture.store.seen if isinstance(r, Renew) for claim in r.claims]


@pytest.mark.parametrize(("lease", "error"), [(0.5, LeaseLost), (30.0, StoreError)])
def test_an_extension_of_a_lease_that_ends_meanwhile_reports_the_loss(
    lease: float, error: type[Exception]
) -> None:
    """The store does not answer: the lease may be valid still, or not."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=lease, renew=False).acquire(None)
        assert handle is not None
        fixture.store.silent = (Renew,)
        with pytest.raises(error) as caught:
            await handle.extend(40.0)
        if error is LeaseLost:
            assert isinstance(caught.value.__cause__, NotApplied | OutcomeUnknown)
            assert handle.lost()

    fixture.do(machine, whole(), 20.0)


def test_a_lease_whose_release_found_its_loss_stays_lost() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=FIXED, renew=False).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + FIXED + 0.1)
        for use in (handle.release(), handle.extend(5.0)):
            with pytest.raises(LeaseLost, match="fixed lease is over"):
                await use

    fixture.do(machine, whole(), 20.0)


def test_a_nested_renewed_lease_prolongs_a_fixed_one_until_its_release() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        outer = await mutex_of(service, lease=FIXED, renew=False).acquire(None)
        inner = await mutex_of(service, lease=FIXED).acquire(None)
        again = await mutex_of(service, lease=FIXED).acquire(None)
        assert outer is not None
        assert inner is not None
        assert again is not None
        assert not lengths(fixture), "the first renewal is the renewer's"
        await inner.release()
        await Sleep(machine.now() + 5 * FIXED)
        again.ensure()
        await again.release()
        outer.ensure()
        await Sleep(machine.now() + FIXED)
        with pytest.raises(LeaseLost, match="fixed lease is over"):
            await outer.release()

    fixture.do(machine, whole(), 60.0)
    assert set(lengths(fixture)) == {FIXED}


@pytest.mark.parametrize("end", ["generator", "dropped"])
def test_a_fixed_lease_is_not_prolonged_by_a_nested_one_that_has_no_release(end: str) -> None:
    """It was that of a generator that is dropped, or an interrupt came before its release."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        outer = await mutex_of(service, lease=FIXED, renew=False).acquire(None)
        inner = await mutex_of(service, lease=FIXED).enter()
        await Sleep(machine.now() + 5 * FIXED)
        outer.ensure()
        if end == "generator":
            await inner.leave(GeneratorExit())
        else:
            inner.reference.left_by = no_operation
        await Sleep(machine.now() + FIXED)
        assert outer.lost()
        with pytest.raises(LeaseLost, match="fixed lease is over"):
            await outer.release()

    fixture.do(machine, whole(), 60.0)


@pytest.mark.parametrize("renew", [True, False])
def test_a_nested_lease_that_is_longer_than_a_fixed_one_is_asked_for_at_once(renew: bool) -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        outer = await mutex_of(service, lease=FIXED, renew=False).acquire(None)
        inner = await mutex_of(service, lease=30.0, renew=renew).acquire(None)
        assert outer is not None
        assert inner is not None
        assert lengths(fixture) == [30.0]
        assert inner.remaining() > 25.0
        await Sleep(machine.now() + 31.0)
        assert inner.lost() is not renew

    fixture.do(machine, whole(), 60.0)


def test_a_nested_lease_that_is_not_granted_its_length_changes_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        outer = await mutex_of(service, lease=10.0, renew=False).acquire(None)
        assert outer is not None
        fixture.store.silent = (Renew,)
        with pytest.raises(StoreError):
            await mutex_of(service, lease=30.0).acquire(None)
        fixture.store.silent = ()
        assert outer.hold.depth == 1
        await outer.release()

    fixture.do(machine, whole(), 60.0)
    assert not fixture.store.table.entries["a"].holds


def test_leases_of_one_client_that_adopt_the_same_grant_share_its_hold() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        assert handle is not None
        await handle.detach()
        one = await service.adopt("a", handle.hold.token)
        other = await service.adopt("a", handle.hold.token)
        assert one.hold is other.hold
        await one.release()
        other.ensure()
        assert fixture.store.table.entries["a"].holds
        await other.release()

    fixture.do(machine, whole(), 20.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_lease_is_adopted_from_a_store_without_min_hold() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend = service.contexts[None].registry.backend

    async def whole() -> None:
        handle = await mutex_of(service).acquire(None)
        await handle.detach()
        adopted = await service.adopt("a", handle.hold.token)
        assert adopted.hold.claim.min_hold == 0.0
        await adopted.release()

    backend.capabilities = backend.capabilities._replace(min_hold=False)
    fixture.do(machine, whole(), 20.0)
    assert not fixture.store.table.entries["a"].holds


def test_a_lease_is_not_nested_in_one_that_was_released_while_it_was_extended() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    outer: list[LeaseHandle] = []

    async def whole() -> None:
        outer.append(await mutex_of(service, lease=10.0, renew=False).acquire(None))
        with pytest.raises(NotHeld, match="released meanwhile"):
            await mutex_of(service, lease=30.0, renew=False).acquire(None)

    run = machine.start(whole())
    while not lengths(fixture):
        fixture.simulator.play(fixture.simulator.time + 0.0001)
    machine.start(outer[0].release())
    fixture.simulator.play(fixture.simulator.time + 10.0)
    assert run.ended
    assert run.error is None
    assert not service.contexts[None].registry.table
