"""A text that is given when a lock is broken by force reaches the holder that loses it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.break_notice import PATIENCE
from leaselock._core.client.hold import NOT_OURS, TAKEN
from leaselock._core.contract.backend import Acquire, Inspect
from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle

LEASE = 3.0
TEXT = "the report hangs\n"
SHOWN = "the lock was broken by force, from two: the report hangs\\n"


class Operator:
    """Who breaks locks, on another machine."""

    def __init__(self, fixture: Fixture) -> None:
        self.machine, self.core = fixture.client("two")

    async def break_lock(self, text: str | None = None) -> None:
        """Break the lock, and wait for the end of that."""
        run = self.machine.start(self.core.break_lock("a", None, text))
        while not run.ended:
            await Sleep(self.machine.now() + 0.01)


def pair() -> tuple[Fixture, Machine, ClientCore, Operator]:
    """A holder, and an operator."""
    fixture = Fixture()
    machine, service = fixture.client("one")
    return fixture, machine, service, Operator(fixture)


async def renewed(machine: Machine, lease: LeaseHandle) -> None:
    """The renewer finds out."""
    await Sleep(machine.now() + LEASE / 2)
    lease.ensure()


async def extended(machine: Machine, lease: LeaseHandle) -> None:
    """An extension finds out."""
    await lease.extend(LEASE)


async def released(machine: Machine, lease: LeaseHandle) -> None:
    """The release finds out."""
    await lease.release()


@pytest.mark.parametrize("find", [renewed, extended, released])
def test_the_holder_is_told(find: Callable[[Machine, LeaseHandle], Any]) -> None:
    fixture, machine, service, operator = pair()
    heard: list[Any] = []

    async def whole() -> None:
        lease = await mutex_of(service, lease=LEASE).acquire(None)
        await operator.break_lock(TEXT)
        assert await service.locks("*", walk=False) == []
        with pytest.raises(LeaseLost) as lost:
            await find(machine, lease)
        assert lost.value.reason == SHOWN
        await Sleep(machine.now() + 1.0)

    service.listen(heard.append)
    fixture.do(machine, whole(), 20.0)
    assert [event.reason for event in heard if event.kind == "lost"] == [SHOWN]


@pytest.mark.parametrize("find", [renewed, released])
def test_without_a_text_the_reason_is_the_usual_one(
    find: Callable[[Machine, LeaseHandle], Any],
) -> None:
    fixture, machine, service, operator = pair()

    async def whole() -> None:
        lease = await mutex_of(service, lease=LEASE).acquire(None)
        await operator.break_lock()
        with pytest.raises(LeaseLost) as lost:
            await find(machine, lease)
        assert lost.value.reason in (TAKEN, NOT_OURS)

    fixture.do(machine, whole(), 20.0)
    acquired = [request for request in fixture.store.seen if isinstance(request, Acquire)]
    assert {request.claim.name for request in acquired} == {"a"}


def test_a_store_that_is_slow_to_say_delays_nothing() -> None:
    fixture, machine, service, operator = pair()

    async def whole() -> None:
        lease = await mutex_of(service, lease=LEASE).acquire(None)
        await operator.break_lock(TEXT)
        fixture.store.silent = (Inspect,)
        began = machine.now()
        with pytest.raises(LeaseLost, match="another holder"):
            await lease.extend(LEASE)
        assert machine.now() - began < PATIENCE + 0.2

    fixture.do(machine, whole(), 20.0)


def test_a_store_that_cannot_keep_the_text_is_not_asked_for_it() -> None:
    fixture, machine, service, operator = pair()
    for core in (service, operator.core):
        backend = core.context(None).registry.backend
        backend.capabilities = backend.capabilities._replace(fragile_holds=True)

    async def whole() -> None:
        lease = await mutex_of(service, lease=LEASE).acquire(None)
        await operator.break_lock(TEXT)
        before = len(fixture.store.seen)
        with pytest.raises(LeaseLost, match="no longer had this hold"):
            await lease.release()
        assert len(fixture.store.seen) == before + 1

    fixture.do(machine, whole(), 20.0)


def test_a_store_that_refuses_the_text_is_not_kept_from_breaking() -> None:
    fixture, machine, service, operator = pair()

    async def whole() -> None:
        lease = await mutex_of(service, lease=LEASE).acquire(None)
        fixture.store.refused = (Acquire,)
        await operator.break_lock(TEXT)
        with pytest.raises(LeaseLost, match=f"{TAKEN}|{NOT_OURS}"):
            await lease.release()

    fixture.do(machine, whole(), 20.0)
