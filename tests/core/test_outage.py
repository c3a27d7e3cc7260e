"""Waiting for a store that is out of reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, Refusing, mutex_of

from leaselock._core.contract.backend import Acquire
from leaselock.errors import ClientClosed, NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from leaselock._core.client.mutex import Mutex

PATIENT: dict[str, Any] = {"on_outage": "wait", "outage_timeout": 3600.0}


def test_a_refusal_for_another_reason_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password that was changed during the outage, for a claim that may have arrived before."""
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.silent = (Acquire,)
    run = machine.start(mutex_of(service, **PATIENT).acquire(None))
    fixture.simulator.play(60.0)
    assert not run.ended

    async def deny(*_: object, **__: object) -> None:
        raise NotApplied("wrong password", "denied")

    monkeypatch.setattr(Refusing, "acquire", deny)
    fixture.simulator.play(70.0)
    assert isinstance(run.error, OutcomeUnknown)
    assert "wrong password" in str(run.error)


def test_too_few_connections_of_this_client_are_waited_for_as_told() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.pool_exhausted = True
    waiting = machine.start(mutex_of(service, **PATIENT).acquire(None))
    other = machine.start(mutex_of(service, "b").acquire(None))
    fixture.simulator.play(60.0)
    assert not waiting.ended
    assert "all connections were busy" in str(other.error)
    fixture.store.pool_exhausted = False
    fixture.simulator.play(70.0)
    assert waiting.result.hold.token > 0


def test_a_store_whose_replies_take_longer_than_the_lease_is_waited_for() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.late = (Acquire,)

    def short(name: str, **options: Any) -> Mutex:
        return mutex_of(service, name, lease=0.2, **options)

    with pytest.raises(OutcomeUnknown, match="longer than the lease"):
        fixture.do(machine, short("a").acquire(None), 30.0)
    waiting = machine.start(short("b", **PATIENT).acquire(None))
    fixture.simulator.play(fixture.simulator.time + 30.0)
    assert not waiting.ended
    fixture.store.late = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert waiting.result.hold.token > 0


def test_the_end_of_the_client_ends_the_wait_at_once() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    fixture.store.refused = (Acquire,)
    waiting = machine.start(mutex_of(service, **PATIENT).acquire(None))
    kinds: list[str] = []
    service.listen(lambda event: kinds.append(event.kind), rare=True)
    fixture.simulator.play(20.0)
    assert kinds == ["outage"]
    closing = machine.start(service.close())
    fixture.simulator.play(20.001)
    assert isinstance(waiting.error, ClientClosed)
    fixture.simulator.play(25.0)
    assert closing.ended


def test_what_the_store_said_is_reported_and_not_the_silence_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    acquire, said = Refusing.acquire, [OutcomeUnknown("the disk is full", "refused")]

    async def full(self: Refusing, *words: Any, **options: Any) -> Any:
        if said:
            raise said.pop()
        return await acquire(self, *words, **options)

    monkeypatch.setattr(Refusing, "acquire", full)
    fixture.store.silent = (Acquire,)
    with pytest.raises(OutcomeUnknown, match="the disk is full"):
        fixture.do(machine, mutex_of(service).acquire(None), 30.0)
