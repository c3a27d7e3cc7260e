"""The turn of `once` with on_error="retry", on a store that is silent, or breaks the lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.contract.backend import Acquire, BreakLock, Release
from leaselock._core.contract.effects import Sleep
from leaselock.errors import LeaseLost, OutcomeUnknown

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle

HOW: dict[str, Any] = {"lease": 3.0, "protocol": None, "label": None, "max_hold": None}


def client_of(fixture: Fixture, name: str = "one") -> tuple[Machine, ClientCore]:
    machine, service = fixture.client(name)
    service.contexts[None].registry.backend.capabilities = CAPABILITIES
    return machine, service


async def take(service: ClientCore, every: float = 60.0, align: bool = False) -> LeaseHandle | None:
    return await service.once("a", every, align, 1, "retry", **HOW)


def taken(fixture: Fixture, name: str = "two") -> bool:
    """Whether another client gets no turn."""
    machine, service = client_of(fixture, name)
    return fixture.do(machine, take(service)) is None


def test_a_lost_reply_is_asked_for_again() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def whole() -> None:
        handle = await take(service)
        assert handle is not None
        fixture.store.lost_replies = 1
        await handle.end_body(None)

    fixture.do(machine, whole())
    assert taken(fixture)


@pytest.mark.parametrize("align", [False, True])
def test_a_turn_whose_end_is_not_confirmed_is_given_back(align: bool) -> None:
    """The work is done, and LeaseLost says that it may be done again."""
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def whole() -> None:
        handle = await take(service, align=align)
        assert handle is not None
        fixture.store.silent = (Acquire, Release)
        with pytest.raises(LeaseLost, match="the turn is given back") as caught:
            await handle.end_body(None)
        assert isinstance(caught.value.__cause__, OutcomeUnknown)
        fixture.store.silent = ()

    fixture.do(machine, whole(), 10.0)
    assert not taken(fixture)


@pytest.mark.parametrize("another", [False, True])
def test_a_turn_that_was_taken_away_is_lost(another: bool) -> None:
    """By force; *another* client has it then."""
    fixture = Fixture()
    machine, service = client_of(fixture)
    other, theirs = client_of(fixture, "theirs")

    async def whole() -> None:
        handle = await take(service, align=True)
        assert handle is not None
        await Sleep(machine.now() + 0.8)
        with pytest.raises(LeaseLost):
            await handle.end_body(None)

    async def meanwhile() -> None:
        await Sleep(other.now() + 0.4)
        await theirs.context(None).registry.backend.request(BreakLock("a", None), 1e9)
        if another:
            assert await theirs.once("a", 60.0, False, 1, "keep", **HOW) is not None

    other.start(meanwhile())
    fixture.do(machine, whole())
    assert taken(fixture) == another


def test_a_body_that_is_dropped_or_released_uses_up_no_turn() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)

    async def whole() -> None:
        handle = await take(service)
        assert handle is not None
        await handle.release()
        await handle.end_body(None)
        handle = await take(service, every=0.2)
        assert handle is not None
        await Sleep(machine.now() + 0.3)
        await handle.end_body(None)

    fixture.do(machine, whole())
    assert not taken(fixture)
