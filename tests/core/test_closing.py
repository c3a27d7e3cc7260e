"""A client that closes waits for the processes in flight."""

from __future__ import annotations

from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client_core import ClientCore
from leaselock._core.effects import Wait


def test_the_last_process_may_end_just_before_the_closing_one_waits() -> None:
    machine, core = Fixture().client()
    assert isinstance(core, ClientCore)
    registry = core.context(None).registry
    registry.in_flight.active += 1
    closing = registry.close(machine.now() + 5.0)
    effect = closing.send(None)
    assert isinstance(effect, Wait)
    # Another thread takes a step before this one has begun to wait.
    registry.in_flight.exit()
    assert effect.signal.is_set
    closing.close()


def test_locks_that_outlive_the_process_are_known() -> None:
    fixture = Fixture()
    machine, core = fixture.client()
    handle = fixture.do(machine, mutex_of(core).acquire(None))
    backend = core.context(None).registry.backend
    assert core.unreleased() == []
    backend.capabilities = backend.capabilities._replace(detects_death=False)
    assert core.unreleased() == ["a"]
    fixture.do(machine, handle.release())
    assert core.unreleased() == []
