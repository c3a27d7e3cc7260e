"""Watching a lock on a simulated store: notifications, silence, and the end of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.watching import LONGEST_INTERVAL, TOLERATED_SILENCE, or_stop
from leaselock._core.contract.backend import WATCH_LASTS, Inspect, Watch, Watched
from leaselock._core.contract.effects import Sleep
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.watching import Watcher
    from leaselock._core.contract.backend import Backend


class Looking(NodeBackend):
    """A backend that sends no notifications of changes."""

    notifies = False

    def __init__(self, backend: Backend) -> None:
        can = backend.capabilities._replace(notifies_changes=self.notifies)
        super().__init__(can, "store", "listener")


class Refused(Looking):
    """A backend whose store refuses to send notifications, to this client at least."""

    notifies = True

    async def request(self, request: Any, until: float) -> Any:
        if not isinstance(request, Watch):
            return await super().request(request, until)
        (state,) = await self.send(Inspect(request.claim.name, "*"), until)
        return Watched(state, 0.0, notified=False)


class Refusing(Looking):
    """One whose server can be unreachable."""

    refuses = True

    async def request(self, request: Any, until: float) -> Any:
        if self.refuses:
            raise NotApplied("nothing listens there")
        return await super().request(request, until)


@pytest.fixture
def fixture() -> Fixture:
    return Fixture()


def holders(fixture: Fixture, machine: Machine, watcher: Watcher, seen: list[Any]) -> None:
    """Record each change and when it was reported, until the client is closed."""

    async def follow() -> None:
        while (change := await watcher.next()) is not None:
            seen.append((fixture.simulator.time, change.holder and change.holder.host))

    machine.start(follow(), "watcher")


def hold_for(fixture: Fixture, machine: Machine, core: ClientCore, seconds: float) -> None:
    async def hold() -> None:
        handle = await mutex_of(core).acquire(None)
        assert handle is not None
        await Sleep(machine.now() + seconds)
        await handle.release()

    machine.start(hold())


@pytest.mark.parametrize("instead", [None, Looking, Refused])
def test_changes_are_reported_until_the_client_is_closed(
    fixture: Fixture, instead: type[Looking] | None
) -> None:
    machine, core = fixture.client("watcher")
    registry, notified = core.context(None).registry, instead is None
    if instead is not None:
        registry.backend = instead(registry.backend)
    seen: list[Any] = []
    holders(fixture, machine, mutex_of(core).watch(), seen)
    fixture.simulator.play(3.0)
    hold_for(fixture, *fixture.client("one"), 2.0)
    fixture.simulator.play(3.5)
    hold_for(fixture, *fixture.client("two"), 2.0)
    fixture.simulator.play(12.0)
    assert [host for _, host in seen] == [None, "one", "two", None]
    late = 0.1 if notified else LONGEST_INTERVAL + 0.1
    assert notified == (len(fixture.store.table.entries["a"].watchers) == 1)
    for (found, _), change in zip(seen, (0.0, 3.0, 5.0, 7.0), strict=True):
        assert change <= found <= change + late
    fixture.do(machine, core.close())
    assert "watcher" not in {run.name for run in machine.runs}


def test_the_watcher_of_a_dead_client_is_forgotten(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    holders(fixture, machine, mutex_of(core).watch(), [])
    fixture.simulator.play(1.0)
    machine.crash()
    other, theirs = fixture.client("one")
    entry = fixture.store.table.entries["a"]
    assert len(entry.watchers) == 1
    fixture.do(other, mutex_of(theirs).acquire(None))
    assert not entry.watchers


def test_a_watcher_that_does_not_look_again_is_forgotten(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    fixture.do(machine, mutex_of(core).watch().next())
    other, theirs = fixture.client("one")
    fixture.simulator.play(WATCH_LASTS + 6.0)
    fixture.do(other, mutex_of(theirs).acquire(None))
    assert not fixture.store.table.entries["a"].watchers


def test_the_first_look_is_answered_or_fails_as_any_request_does(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    fixture.store.silent = (Watch, Inspect)
    with pytest.raises(OutcomeUnknown):
        fixture.do(machine, mutex_of(core).watch().next(), 3.0)


def test_a_silent_store_is_tolerated_for_a_while(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    watcher = mutex_of(core).watch()
    fixture.do(machine, watcher.next())
    fixture.store.silent = (Watch,)
    run, began = machine.start(watcher.next()), fixture.simulator.time
    fixture.simulator.play(began + TOLERATED_SILENCE - 1.0)
    assert not run.ended
    fixture.simulator.play(began + TOLERATED_SILENCE + 2.0)
    assert isinstance(run.error, StoreError)


def test_a_store_that_refuses_connections_is_tolerated_as_a_silent_one(fixture: Fixture) -> None:
    """It restarts, or another server takes over."""
    machine, core = fixture.client("watcher")
    backend = Refusing(core.context(None).registry.backend)
    core.context(None).registry.backend = backend
    watcher = mutex_of(core).watch()
    with pytest.raises(NotApplied):
        fixture.do(machine, watcher.next())
    backend.refuses = False
    fixture.do(machine, watcher.next())
    backend.refuses = True
    run, began = machine.start(watcher.next()), fixture.simulator.time
    fixture.simulator.play(began + TOLERATED_SILENCE / 2)
    backend.refuses = False
    hold_for(fixture, *fixture.client("one"), 10.0)
    fixture.simulator.play(began + TOLERATED_SILENCE / 2 + 2.0)
    assert run.result.holder.host == "one"


def test_a_look_that_fails_because_the_client_closes_ends_the_iteration(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    watcher = mutex_of(core).watch()
    fixture.store.silent = (Watch,)
    run = machine.start(watcher.next())
    fixture.simulator.play(0.1)
    fixture.do(machine, core.close(), 10.0)
    assert run.ended
    assert (run.error, run.result) == (None, None)
    assert fixture.do(machine, watcher.next()) is None
    with pytest.raises(StopIteration):
        or_stop(None, StopIteration)
