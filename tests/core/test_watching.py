"""Watching a lock on a simulated store: notifications, silence, and the end of the client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core import test_local
from tests.core.test_service import Fixture, mutex_of
from verification.models.sides import claim_of

from leaselock._core.backend import WATCH_LASTS, Inspect, Watch, Watched
from leaselock._core.effects import Sleep
from leaselock._core.queue import NodeBackend
from leaselock._core.watching import LONGEST_INTERVAL, TOLERATED_SILENCE, or_stop
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.backend import Backend
    from leaselock._core.client_core import ClientCore
    from leaselock._core.mutex import Mutex
    from leaselock._core.watching import Watcher


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


def test_handoffs_within_the_client_are_reported_without_polling(fixture: Fixture) -> None:
    """The store never sees them, so the layer that hands on wakes the watcher."""
    machine, core = test_local.client_of(fixture)
    mutex, tokens = test_local.mutex_of(core, local_handoffs=9), list[Any]()
    machine.start(report_tokens(mutex.watch(), tokens), "watcher")
    others: list[Any] = []
    holders(fixture, machine, mutex.watch(), others)
    fixture.simulator.play(10.0)
    asked = len(fixture.store.seen)
    assert asked < 9, "a watcher that waits sends nothing"
    held = [machine.start(hold(machine, mutex)) for _ in range(3)]
    fixture.simulator.play(11.0)
    assert all(run.ended for run in held)
    assert tokens == list(range(tokens[0], tokens[0] + 3))
    assert len(others) == 5, "free, three holders, free"
    fixture.do(machine, core.close())
    assert not core.layers[core.context(None).registry].watching


async def report_tokens(watcher: Watcher, tokens: list[Any]) -> None:
    while (change := await watcher.next()) is not None:
        tokens.extend([change.holder.token] if change.holder else [])


async def hold(machine: Machine, mutex: Mutex, seconds: float = 0.02) -> None:
    handle = await mutex.acquire(None)
    assert handle is not None
    if seconds:
        await Sleep(machine.now() + seconds)
    await handle.release()


def test_a_waiter_that_takes_the_lease_late_is_reported(fixture: Fixture) -> None:
    """After a short hold the lease is free until the next waiter runs, which may be slow."""
    machine, core = test_local.client_of(fixture)
    mutex, tokens = test_local.mutex_of(core, local_handoffs=9), list[Any]()
    machine.start(report_tokens(mutex.watch(), tokens), "watcher")
    registry = core.context(None).registry
    layer, until = core.layers[registry], 100.0
    first, second, third = (
        claim_of(registry.client, "a", serial, 30.0)._replace(tokens=10) for serial in range(3)
    )

    async def short_holds() -> None:
        for claim in (first, second, third):
            await layer.acquire(claim, wait=True, until=until)
        await layer.release(first, tombstone=False, until=until)
        await layer.acquire(second, wait=True, until=until)
        await layer.release(second, tombstone=False, until=until)

    machine.start(short_holds())
    fixture.simulator.play(0.05)
    assert layer.queues["a"].lease is not None
    assert layer.queues["a"].lease.holder is None

    async def take() -> Any:
        return await layer.acquire(third, wait=True, until=until)

    run = machine.start(take())
    fixture.simulator.play(0.09)
    assert tokens[-1] == run.result.token


def test_a_cached_lease_is_reported_when_it_is_taken_again(fixture: Fixture) -> None:
    machine, core = test_local.client_of(fixture)
    mutex, found = test_local.mutex_of(core, cached=True), list[Any]()
    watcher = mutex.watch()
    fixture.do(machine, hold(machine, mutex), 1.0)
    holders(fixture, machine, watcher, found)
    fixture.simulator.play(10.0)
    looks = [request for request in fixture.store.seen if isinstance(request, (Watch, Inspect))]
    fixture.do(machine, hold(machine, mutex), 1.0)
    after = [request for request in fixture.store.seen if isinstance(request, (Watch, Inspect))]
    assert len(looks) < 5
    assert (len(found), len(after)) == (3, len(looks) + 4)


def test_the_end_of_a_lease_is_seen_without_a_notification(fixture: Fixture) -> None:
    machine, core = fixture.client("watcher")
    other, theirs = fixture.client("one")
    handle = fixture.do(other, mutex_of(theirs, lease=20.0, renew=False).acquire(None))
    assert handle is not None
    seen: list[Any] = []
    holders(fixture, machine, mutex_of(core).watch(), seen)
    fixture.do(other, handle.detach())
    fixture.simulator.play(30.0)
    assert [host for _, host in seen] == ["one", None]
    assert 20.0 <= seen[1][0] <= 20.1


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
