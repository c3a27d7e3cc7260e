"""Short operations, interrupted within a step, as a signal interrupts a thread, or between
two steps, when another thread can run.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, Refusing, mutex_of

from leaselock._core import hold_registry
from leaselock._core.backend import Acquire, Release
from leaselock._core.effects import Call, Sleep
from leaselock._core.hold_registry import HoldReference
from leaselock._core.short_operation import UNFINISHED, ShortOperation

if TYPE_CHECKING:
    from tests.core.test_service import Store
    from verification.simulation.simulator import Machine

    from leaselock._core.client_core import ClientCore


class Interruption(BaseException):
    """What a signal handler raises."""


class Sharing(Refusing):
    """A backend whose leases the threads of a client can share, and cache."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.capabilities = self.capabilities._replace(notifies_contention=True, token_ranges=True)


class SharingFixture(Fixture):
    """A simulator with such backends."""

    backend_type = Sharing


def raise_interruption(*_: object) -> None:
    raise Interruption


async def finished(operation: ShortOperation[Any]) -> Any:
    """The outcome of its two first steps."""
    outcome = operation.begin()
    return operation.finish(await outcome) if isinstance(outcome, Call) else outcome


def client_of(fixture: Fixture) -> tuple[Machine, ClientCore]:
    """A client that has started its renewer."""
    machine, service = fixture.client()

    async def once() -> None:
        await (await mutex_of(service, "first").acquire(None)).release()

    fixture.do(machine, once(), 0.5)
    fixture.store.seen.clear()
    return machine, service


def kinds(fixture: Fixture) -> list[type]:
    seen = fixture.store.seen
    return [type(request) for request in seen if isinstance(request, Acquire | Release)]


def test_a_lease_that_its_caller_never_saw_is_released() -> None:
    """Interrupted when the lease was made, before it was returned."""
    fixture = Fixture()
    machine, service = client_of(fixture)
    mutex = mutex_of(service)

    async def interrupted() -> None:
        operation = mutex.acquire(None)
        lease = await finished(operation)
        assert not lease.released
        with pytest.raises(Interruption):
            await operation.complete(Interruption())
        assert lease.released

    fixture.do(machine, interrupted())
    assert kinds(fixture) == [Acquire, Release]
    registry = service.contexts[None].registry
    assert not registry.pending_releases
    assert registry.in_flight.active == 0
    assert fixture.do(machine, mutex.try_acquire()) is not None


def test_a_grant_whose_lease_was_never_made_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    """Interrupted between the hold and its lease."""
    fixture = Fixture()
    machine, service = client_of(fixture)
    operation = mutex_of(service).acquire(None)
    monkeypatch.setattr(operation, "_lease", raise_interruption)
    with pytest.raises(Interruption):
        fixture.do(machine, operation)
    assert kinds(fixture) == [Acquire, Release]
    assert not service.contexts[None].registry.pending_releases


def test_a_hold_that_is_interrupted_as_it_begins_does_not_stop_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Interrupted before its reference knows whose it is."""
    fixture = Fixture()
    machine, service = client_of(fixture)
    mutex = mutex_of(service)
    kept: list[object] = []

    class Interrupted(HoldReference):
        def __setattr__(self, name: str, value: object) -> None:
            kept.append(self)
            raise Interruption

    monkeypatch.setattr(hold_registry, "HoldReference", Interrupted)
    with pytest.raises(Interruption):
        fixture.do(machine, mutex.acquire(None))
    monkeypatch.undo()
    gc.collect()
    assert service.contexts[None].registry.dropped == kept
    lease = fixture.do(machine, mutex.acquire(None), 0.5)
    fixture.do(machine, lease.release(), 0.5)
    assert kinds(fixture) == [Acquire, Release, Acquire, Release]


def test_a_release_that_is_interrupted_before_its_request_takes_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    lease = fixture.do(machine, mutex_of(service).acquire(None), 0.5)
    monkeypatch.setattr(lease.hold, "transition", raise_interruption)
    with pytest.raises(Interruption):
        fixture.do(machine, lease.release(), 0.0)
    monkeypatch.undo()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert kinds(fixture) == [Acquire, Release]
    assert fixture.do(machine, mutex_of(service).try_acquire()) is not None


def test_the_end_of_a_nested_lease_asks_nothing_even_if_it_is_interrupted() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    mutex = mutex_of(service)

    async def nested() -> None:
        outer, inner = await mutex.acquire(None), await mutex.acquire(None)
        release = inner.release()
        assert release.begin() is None
        with pytest.raises(Interruption):
            await release.complete(Interruption())
        outer.hold.check(machine.now(), "store")
        await outer.release()

    fixture.do(machine, nested())
    assert kinds(fixture) == [Acquire, Release]


def test_a_hold_is_not_weakened_if_another_writer_begins_between_two_steps() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    mutex = mutex_of(service)

    async def nested() -> None:
        outer, inner = await mutex.acquire(None), await mutex.acquire(None)
        # As if the outer lease was a reader's.
        outer.hold.modes[:] = ["shared", "exclusive"]
        release = inner.release()
        assert release.begin() is UNFINISHED
        outer.hold.modes.append("exclusive")
        await release.complete(None)
        outer.hold.modes.remove("shared")
        await outer.release()

    fixture.do(machine, nested())
    assert kinds(fixture) == [Acquire, Release]


def test_a_lease_that_is_cached_between_two_steps_is_taken() -> None:
    fixture = SharingFixture()
    machine, service = client_of(fixture)
    mutex = mutex_of(service, cached=True)

    async def second() -> int:
        operation = mutex_of(service, cached=True).acquire(None)
        assert operation.begin() is UNFINISHED
        await Sleep(machine.now() + 1.0)
        asked = len(kinds(fixture))
        lease = await operation.complete(None)
        assert lease is not None
        await lease.release()
        assert len(kinds(fixture)) == asked
        return lease.hold.token

    async def play() -> None:
        first = await mutex.acquire(None)
        assert first is not None
        run = machine.start(second())
        await Sleep(machine.now() + 0.5)
        await first.release()
        await Sleep(machine.now() + 1.0)
        assert run.error is None
        assert run.result > first.hold.token

    fixture.do(machine, play())


def test_a_lease_is_not_cached_where_nobody_tells_that_another_client_waits() -> None:
    _, service = Fixture().client()
    with pytest.raises(ValueError, match="cached= needs a store and a protocol that tell"):
        mutex_of(service, cached=True)
