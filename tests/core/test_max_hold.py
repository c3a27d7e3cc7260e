"""`max_hold`: a hold is renewed until then, and not beyond."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.contract.backend import Grant, Release, Renew
from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.lease_handle import LeaseHandle

LEASE = 3.0
BOUND = 9.5
# What a holder does not use of its lease: the drift and the margin of the clocks.
UNUSED = 0.2


async def until_lost(machine: Machine, handle: LeaseHandle) -> float:
    """Wait until the lease is lost; return until when it was valid."""
    end = 0.0
    while not handle.lost():
        end = machine.now() + handle.remaining()
        await Sleep(machine.now() + 0.01)
    return end


def lengths(fixture: Fixture) -> list[float]:
    """The lengths of lease that were asked for at each renewal."""
    renewals = [request for request in fixture.store.seen if isinstance(request, Renew)]
    return [claim.lease for renewal in renewals for claim in renewal.claims]


def test_a_hold_is_renewed_until_its_bound_and_then_lost_like_any_other() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, theirs = fixture.client("two")
    called: list[object] = []

    async def whole() -> tuple[float, float]:
        asked = machine.now()
        handle = await mutex_of(service, lease=LEASE, max_hold=BOUND).acquire(None)
        handle.on_lost(called.append, handle, lambda handle: handle)
        lost = await until_lost(machine, handle)
        await Sleep(machine.now() + 0.1)
        assert called == [handle]
        with pytest.raises(LeaseLost, match="max_hold"):
            await handle.release()
        return asked, lost

    async def following() -> float:
        await mutex_of(theirs).acquire(None)
        return other.now()

    holder = fixture.begin(machine, whole())
    successor = fixture.begin(other, following())
    fixture.simulator.play(BOUND + 5.0)
    (asked, lost), granted = holder.result, successor.result
    assert BOUND - UNUSED < lost - asked <= BOUND
    assert lost <= granted <= asked + BOUND + 0.1
    assert lengths(fixture)[0] == LEASE
    assert lengths(fixture)[-1] < LEASE


@pytest.mark.parametrize("renew", [True, False])
def test_a_bound_that_is_shorter_than_the_lease_is_the_lease(renew: bool) -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        asked = machine.now()
        handle = await mutex_of(service, renew=renew, max_hold=2.0).acquire(None)
        assert 2.0 - UNUSED < await until_lost(machine, handle) - asked <= 2.0

    fixture.do(machine, whole(), 10.0)
    assert not lengths(fixture)


def test_a_grant_that_is_confirmed_late_is_held_for_the_whole_time() -> None:
    """The store has it for a moment only, until the client asks again."""
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    acquire = backend.acquire

    async def brief(*arguments: Any, **words: Any) -> object:
        reply = await acquire(*arguments, **words)
        return reply._replace(lasts=1.0) if isinstance(reply, Grant) else reply

    backend.acquire = brief

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE, max_hold=BOUND).acquire(None)
        granted = machine.now()
        assert BOUND - UNUSED < await until_lost(machine, handle) - granted <= BOUND

    fixture.do(machine, whole(), 20.0)


def test_an_extension_moves_the_end() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE, max_hold=BOUND).acquire(None)
        await Sleep(machine.now() + BOUND - 2.0)
        extended = machine.now()
        await handle.extend(BOUND)
        assert BOUND - UNUSED < await until_lost(machine, handle) - extended <= BOUND

    fixture.do(machine, whole(), 30.0)


def test_a_nested_acquisition_keeps_the_end_of_the_outer_one() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        asked = machine.now()
        outer = await mutex_of(service, lease=LEASE, max_hold=BOUND).acquire(None)
        inner = await mutex_of(service, lease=60.0).acquire(None)
        assert await until_lost(machine, inner) - asked <= BOUND
        assert outer.lost()

    fixture.do(machine, whole(), 20.0)


def test_a_hold_that_ends_with_a_session_is_released_at_its_bound() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend = service.contexts[None].registry.backend
    backend.capabilities = CAPABILITIES._replace(session_timeout=4.0)

    async def whole() -> None:
        asked = machine.now()
        handle = await mutex_of(service, lease=60.0, max_hold=BOUND).acquire(None)
        assert BOUND - UNUSED < await until_lost(machine, handle) - asked <= BOUND
        await Sleep(machine.now() + 0.5)

    fixture.do(machine, whole(), 20.0)
    assert any(isinstance(request, Release) for request in fixture.store.seen)


def test_every_kind_of_lock_takes_the_bound() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    words = {"lease": LEASE, "max_hold": BOUND, "protocol": None, "label": None}
    more: dict[str, Any] = words | {"renew": True, "timeout": None}
    locks = service.rwlock("a", reentrant=True, **more)
    semaphore = service.semaphore("s", 4, **more)
    together = service.lock_all(["b", "c"], None, reentrant=True, renew=True, **words)

    async def whole() -> None:
        taken = [await locks["shared"].acquire(None), await semaphore.acquire(None, 2)]
        taken += (await together.acquire(None)).handles
        once = await service.once("o", 60.0, False, **words)
        assert once is not None
        await Sleep(machine.now() + BOUND - UNUSED)
        assert not [handle for handle in (*taken, once) if handle.lost()]
        await Sleep(machine.now() + UNUSED)
        assert not [handle for handle in (*taken, once) if not handle.lost()]

    fixture.do(machine, whole(), 20.0)


@pytest.mark.parametrize("wrong", [0, -1.0, float("nan"), 0.001])
def test_a_bound_that_no_lease_can_have_is_refused(wrong: float) -> None:
    _, service = Fixture().client()
    with pytest.raises(ValueError, match="max_hold"):
        mutex_of(service, max_hold=wrong)
    with pytest.raises(TypeError, match="max_hold"):
        mutex_of(service, max_hold=str(wrong))
