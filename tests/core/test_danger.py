"""`on_danger`: a callback is called once, when a lease was not renewed and a given time is left."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, answer_by, mutex_of

from leaselock._core.client.hold import Hold
from leaselock._core.contract.backend import Renew
from leaselock._core.contract.effects import Sleep
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from types import FrameType

    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle

LEASE = 30.0


def notes(machine: Machine, handle: LeaseHandle, *seconds: float) -> list[float]:
    """Have a callback note how much is left of the lease, whenever it is called."""
    left: list[float] = []
    for each in seconds:
        handle.on_danger(each, lambda its: left.append(its.remaining()), handle, lambda its: its)
    return left


def silence(service: ClientCore, machine: Machine) -> list[bool]:
    """While the list is not empty, the store does not answer renewals."""
    backend: Any = service.contexts[None].registry.backend
    carry_out, silent = backend.request, [True]

    async def without_answer(request: Renew, until: float) -> object:
        if silent:
            await Sleep(until)
            raise NotApplied("no answer")
        return await carry_out(request, until)

    answer_by(backend, Renew, without_answer)
    return silent


def test_each_callback_is_called_once_when_so_much_is_left() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        left = notes(machine, handle, 3.0, 9.0)
        silence(service, machine)
        await Sleep(machine.now() + handle.remaining() - 9.5)
        assert left == []
        await Sleep(machine.now() + handle.remaining() - 1.0)
        # Never too early, and hardly later, although the store is silent.
        assert [round(each) for each in left] == [9, 3]
        assert left[0] <= 9.0
        assert left[1] <= 3.0
        await Sleep(machine.now() + 2.0)
        assert handle.lost()
        assert len(left) == 2

    fixture.do(machine, whole(), 40.0)


def test_a_renewal_ends_the_danger() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        left = notes(machine, handle, 9.0)
        silent = silence(service, machine)
        await Sleep(machine.now() + handle.remaining() - 12.0)
        silent.clear()
        await Sleep(machine.now() + 100.0)
        assert not handle.lost()
        assert left == []
        silent.append(True)
        await Sleep(machine.now() + handle.remaining() - 5.0)
        assert len(left) == 1
        silent.clear()
        await Sleep(machine.now() + 100.0)
        silent.append(True)
        await Sleep(machine.now() + 100.0)
        # It was called once, and is not called for a later danger, nor for the loss.
        assert handle.lost()
        assert len(left) == 1

    fixture.do(machine, whole(), 400.0)


def test_a_callback_comes_at_once_if_so_little_is_left_already() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE, renew=False).acquire(None)
        await Sleep(machine.now() + 20.0)
        left = notes(machine, handle, LEASE)
        await Sleep(machine.now() + 0.1)
        assert len(left) == 1
        assert left[0] > 9.0

    fixture.do(machine, whole(), 40.0)


def test_the_end_of_max_hold_is_a_danger_too() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        began = machine.now()
        handle = await mutex_of(service, lease=LEASE, max_hold=100.0).acquire(None)
        left = notes(machine, handle, 10.0)
        await Sleep(began + 89.0)
        assert left == []
        await Sleep(began + 91.0)
        assert len(left) == 1
        await handle.release()

    fixture.do(machine, whole(), 120.0)


def test_a_lease_that_ended_is_in_no_danger() -> None:
    """Released, nested and released, or lost: nothing is called, and nothing kept."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        mutex = mutex_of(service, lease=LEASE, renew=False)
        handle = await mutex.acquire(None)
        nested = await mutex.acquire(None)
        left = notes(machine, nested, 5.0)
        await nested.release()
        await Sleep(machine.now() + handle.remaining() - 1.0)
        assert left == []
        await handle.release()
        left += notes(machine, handle, 5.0)
        await Sleep(machine.now() + 10.0)
        assert left == []
        assert handle.hold.danger_at() == float("inf")

    fixture.do(machine, whole(), 60.0)


@pytest.mark.parametrize("waits", [False, True])
def test_a_grant_that_is_yet_to_be_confirmed_is_in_no_danger(waits: bool) -> None:
    """A waiter is granted a lock for two seconds, in the first of which it is renewed."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        handle.hold.provisional = waits
        handle.hold.valid_until = machine.now() + 2.0
        left = notes(machine, handle, 9.0)
        await Sleep(machine.now() + 0.9)
        assert (left == []) is waits

    fixture.do(machine, whole())


@pytest.mark.parametrize("wrong", [0.0, -1.0, 15.1, float("nan")])
def test_a_time_that_renewals_do_not_leave_is_refused(wrong: float) -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        with pytest.raises(ValueError, match=r"seconds is from 0\.01 to 15 seconds"):
            notes(machine, handle, wrong)
        await handle.release()

    fixture.do(machine, whole())


def test_a_term_of_an_election_may_have_a_bound() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        words = {"protocol": None, "label": None}
        candidacy = service.election("e", lease=9.0, max_hold=20.0, **words)
        term = candidacy.campaign()
        handle = await term.begin()
        await Sleep(machine.now() + 19.0)
        assert not handle.lost()
        await Sleep(machine.now() + 2.0)
        assert handle.lost()

    fixture.do(machine, whole(), 60.0)


def test_the_renewer_asks_only_leases_that_have_callbacks() -> None:
    """With many leases most of its time would go by, once for each request that renews some."""
    fixture = Fixture()
    machine, service = fixture.client()
    asked: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code is Hold.danger_at.__code__:
            asked.append(frame.f_locals["self"].claim.name)

    async def whole() -> None:
        handles = [await mutex_of(service, f"{n}", lease=LEASE).acquire(None) for n in range(3)]
        notes(machine, handles[1], 3.0)
        sys.setprofile(note)
        try:
            await Sleep(machine.now() + LEASE)
        finally:
            sys.setprofile(None)
        assert all(handle.hold.renewals for handle in handles)
        assert set(asked) == {"1"}

    fixture.do(machine, whole(), 2 * LEASE)
