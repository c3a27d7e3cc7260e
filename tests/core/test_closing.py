"""A client that closes waits for the processes in flight."""

from __future__ import annotations

from tests.core.test_service import Fixture, mutex_of


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
