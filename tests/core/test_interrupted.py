"""Interrupted threads and tasks: what they wait for, and what is left to the renewer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_modes import OPTIONS
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client.lease_handle import LeaseHandle
from leaselock._core.contract.backend import Acquire, Release
from leaselock._core.contract.effects import FOREVER, Signal, Wait
from leaselock.errors import AcquireCancelled, AcquireTimeout, LeaseLost

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine, Run

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.events import Event

NOT_CONFIRMED = "the store has not confirmed yet that the claim to 'a' has left it"
# Longer than the time for which an interrupted process waits for the store, which is a second.
LONG = 2.0


def waiting(fixture: Fixture) -> tuple[Machine, ClientCore, Run]:
    """A client that waits for a lock that another one holds."""
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None), 0.5)
    machine, service = fixture.client()
    return machine, service, fixture.begin(machine, mutex_of(service).acquire(None))


def events_of(service: ClientCore) -> list[Event]:
    events: list[Event] = []
    service.listen(events.append)
    return events


def queue_of(fixture: Fixture, name: str = "a") -> list[Any]:
    entry = fixture.store.table.entries.get(name)
    return [] if entry is None else list(entry.queue)


def test_a_cancelled_wait_ends_when_its_claim_has_left_the_store() -> None:
    fixture = Fixture()
    _, service, run = waiting(fixture)
    assert queue_of(fixture)
    seen: list[bool] = []
    events = events_of(service)
    run.machine.simulator.check = lambda: (
        seen.append(bool(queue_of(fixture))) if run.ended else None
    )
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + LONG)
    assert run.error is not None
    assert seen[0] is False
    assert not hasattr(run.error, "__notes__")
    assert [(event.kind, event.reason) for event in events] == [("cancelled", "")]
    assert not service.contexts[None].registry.pending()


def test_the_wait_for_a_silent_store_has_a_bound_and_the_rest_is_said() -> None:
    fixture = Fixture()
    _, service, run = waiting(fixture)
    events = events_of(service)
    fixture.store.silent = (Release,)
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.9)
    assert not run.ended
    fixture.simulator.play(fixture.simulator.time + 0.2)
    assert run.error is not None
    assert run.error.__notes__ == [f"leaselock: {NOT_CONFIRMED}"]
    assert [(event.kind, event.reason) for event in events] == [("cancelled", NOT_CONFIRMED)]
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert not queue_of(fixture)
    assert not service.contexts[None].registry.pending()


def test_a_second_interruption_ends_the_wait_for_the_store() -> None:
    fixture = Fixture()
    _, service, run = waiting(fixture)
    events = events_of(service)
    fixture.store.silent = (Release,)
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert not run.ended
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert run.ended
    assert [event.kind for event in events] == ["cancelled"]
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert not queue_of(fixture)


def test_a_cancelled_lock_says_what_is_left_to_the_background() -> None:
    fixture = Fixture()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None), 0.5)
    machine, service = fixture.client()
    mutex = mutex_of(service)
    run = fixture.begin(machine, mutex.acquire(None))
    events = events_of(service)
    fixture.store.silent = (Release,)
    mutex.cancel()
    fixture.simulator.play(fixture.simulator.time + 0.9)
    assert not run.ended
    fixture.simulator.play(fixture.simulator.time + 0.2)
    assert isinstance(run.error, AcquireCancelled)
    assert run.error.__notes__ == [f"leaselock: {NOT_CONFIRMED}"]
    assert events[-1].reason.endswith(NOT_CONFIRMED)


def test_a_timeout_reports_what_is_left_to_the_background() -> None:
    fixture = Fixture()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None), 0.5)
    machine, service = fixture.client()
    events = events_of(service)
    fixture.store.silent = (Release,)
    with pytest.raises(AcquireTimeout):
        fixture.do(machine, mutex_of(service).acquire(0.5), 3.0)
    assert (events[-1].kind, events[-1].reason) == ("timed_out", NOT_CONFIRMED)


def all_of(service: ClientCore) -> Any:
    return service.lock_all(["a", "b", "c"], None, reentrant=True, **OPTIONS)


def held(fixture: Fixture) -> list[str]:
    return [name for name, entry in fixture.store.table.entries.items() if entry.holds]


@pytest.mark.parametrize("silent", [False, True], ids=["answered", "silent"])
def test_an_interrupted_wait_for_several_locks_releases_the_others(silent: bool) -> None:
    fixture = Fixture()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival, "c").acquire(None), 0.5)
    machine, service = fixture.client()
    run = fixture.begin(machine, all_of(service).acquire(None))
    assert held(fixture) == ["c", "a", "b"]
    if silent:
        fixture.store.silent = (Release,)
    found: list[list[str]] = []
    fixture.simulator.check = lambda: found.append(held(fixture)) if run.ended else None
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 2.5)
    assert run.error is not None
    if silent:
        assert found[0] == ["c", "a", "b"]
        assert "the claim to 'a', 'b' has left it" in run.error.__notes__[-1]
        fixture.store.silent = ()
        fixture.simulator.play(fixture.simulator.time + 5.0)
    else:
        assert found[0] == ["c"]
    assert held(fixture) == ["c"]
    assert not service.contexts[None].registry.pending()


def test_the_interrupted_end_of_a_body_on_several_locks_releases_all() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    locks = all_of(service)
    leases = fixture.do(machine, locks.enter(), 0.5)
    fixture.store.silent = (Release,)
    run = fixture.begin(machine, locks.leave(None))
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert run.ended
    assert all(handle.released and handle.interrupter is None for handle in leases.handles)
    fixture.store.silent = ()
    fixture.simulator.play(fixture.simulator.time + 5.0)
    assert held(fixture) == []
    again = fixture.do(machine, locks.acquire(None), 0.5)
    tokens = [[handle.hold.token for handle in each.handles] for each in (leases, again)]
    assert all(map(int.__lt__, *tokens))


class Interrupter:
    """Interrupts nothing; it notes that its body has ended."""

    finished = False

    def interrupt(self) -> None:
        raise AssertionError("no lease is lost")

    def finish(self, exception: BaseException | None) -> bool:
        self.finished = True
        return False


def test_no_guard_is_left_when_the_end_of_the_body_is_interrupted() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    locks, interrupters = all_of(service), [Interrupter() for _ in range(3)]
    leases = fixture.do(machine, locks.enter(), 0.5)
    for handle, interrupter in zip(leases.handles, interrupters, strict=True):
        handle.interrupter, handle.hold.interrupters = interrupter, (interrupter,)
    fixture.store.silent = (Release,)
    run = fixture.begin(machine, locks.leave(None))
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert all(interrupter.finished for interrupter in interrupters)
    assert not any(handle.hold.interrupters for handle in leases.handles)


def test_members_are_released_later_when_the_client_is_closed_or_the_time_has_passed() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    registry = service.contexts[None].registry
    first = fixture.do(machine, mutex_of(service, "a").acquire(None), 0.5)
    second = fixture.do(machine, mutex_of(service, "b").acquire(None), 0.5)
    fixture.do(machine, first.withdraw(machine.now()), 0.0)
    assert [hold.claim.name for hold in registry.pending()] == ["a"]
    registry.closed = True
    fixture.do(machine, second.withdraw(FOREVER), 0.0)
    assert [hold.claim.name for hold in registry.pending()] == ["a", "b"]


# --- the loss of a lease --------------------------------------------------------------------------


def lost_lease(fixture: Fixture) -> tuple[Machine, LeaseHandle, list[object]]:
    """A lease, at whose end the renewer does not look, and what its callback is given."""
    machine, service = fixture.client()
    handle = fixture.do(machine, mutex_of(service, lease=1.0, renew=False).acquire(None), 0.1)
    assert isinstance(handle, LeaseHandle)
    given: list[object] = []
    handle.on_lost(given.append, handle, lambda lost: lost)
    handle.hold.next_check = FOREVER
    fixture.store.silent = (Release,)
    return machine, handle, given


def test_a_lost_lease_is_reported_even_if_its_release_is_interrupted() -> None:
    fixture = Fixture()
    machine, handle, given = lost_lease(fixture)
    handle.hold.lose("for this test")
    run = machine.start(handle.release())
    fixture.simulator.after(0.001, lambda: fixture.simulator.interrupt(run))
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert run.ended
    assert not isinstance(run.error, LeaseLost)
    assert given == [handle]


def test_a_lost_lease_is_reported_even_if_it_is_dropped() -> None:
    fixture = Fixture()
    machine, handle, given = lost_lease(fixture)
    handle.hold.lose("for this test")

    async def drop() -> None:
        handle.drop()

    # The renewer first tries the release, and the store is silent.
    fixture.do(machine, drop(), 1.5)
    assert given == [handle]


# --- closing --------------------------------------------------------------------------------------


def test_an_interrupted_close_is_continued_by_the_next_one() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    leases = [fixture.do(machine, mutex_of(service, name).acquire(None), 0.1) for name in "abc"]
    fixture.store.silent = (Release,)
    run = fixture.begin(machine, service.close())
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert run.ended
    assert len(held(fixture)) == len(leases)
    fixture.store.silent = ()
    fixture.do(machine, service.close())
    assert held(fixture) == []
    fixture.store.seen.clear()
    fixture.do(machine, service.close())
    assert fixture.store.seen == []


def test_a_close_that_was_interrupted_while_it_waited_is_continued() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    lease = fixture.do(machine, mutex_of(service).acquire(None), 0.1)
    registry = service.contexts[None].registry
    watching = registry.begin_watching()
    run = fixture.begin(machine, service.close())
    assert not run.ended
    fixture.simulator.interrupt(run)
    fixture.simulator.play(fixture.simulator.time + 0.1)
    registry.end_watching(watching)
    fixture.do(machine, service.close())
    assert held(fixture) == []
    assert lease.lost()


# --- leases that are dropped ----------------------------------------------------------------------


def test_dropped_leases_are_forgotten() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    registry, owners = service.contexts[None].registry, []

    async def drop() -> None:
        for number in range(50):
            lease = await mutex_of(service, f"dropped {number}").acquire(None)
            assert lease is not None
            lease.hold.owned = number % 2 == 0  # half of them without the warning
            del lease
        owners.append(machine.owner())
        await Wait(Signal(), machine.now() + 1.0)

    with pytest.warns(ResourceWarning) as said:
        fixture.do(machine, drop(), 40.0)
    # Another test may have left something to the collector, which warns of it now.
    warned = [str(warning.message) for warning in said if "'dropped " in str(warning.message)]
    assert sum("was dropped while held" in text for text in warned) == 25
    assert not registry.table
    assert not owners[0].holds
    assert len([seen for seen in fixture.store.seen if isinstance(seen, Acquire)]) == 50


def dropped(fixture: Fixture) -> tuple[Machine, ClientCore]:
    """A client whose user has dropped the lease of a lock, which lasts 30 s."""
    machine, service = fixture.client()

    async def drop() -> None:
        await mutex_of(service).acquire(None)

    with pytest.warns(ResourceWarning, match="was dropped while held"):
        fixture.do(machine, drop(), 15.0)
    return machine, service


def test_a_dropped_lease_keeps_others_out_until_it_expires() -> None:
    """Its user may count on it, although nothing renews it. ZooKeeper has no expiry of its own."""
    fixture = Fixture()
    dropped(fixture)
    other, rival = fixture.client("two")
    run = fixture.begin(other, mutex_of(rival).acquire(None))
    fixture.simulator.play(28.0)
    assert not run.ended
    fixture.simulator.play(32.0)
    assert run.ended
    assert run.error is None


def test_a_warning_tells_of_a_fixed_lease_that_was_dropped() -> None:
    """Nothing looks at it before its end."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def drop() -> None:
        await mutex_of(service, lease=3.0, renew=False).acquire(None)

    with pytest.warns(ResourceWarning, match="was dropped while held"):
        fixture.do(machine, drop(), 5.0)


def test_a_dropped_lease_is_released_when_its_client_closes() -> None:
    fixture = Fixture()
    machine, service = dropped(fixture)
    fixture.do(machine, service.close())
    assert not fixture.store.table.entries["a"].holds


def test_a_dropped_lease_is_released_at_once_when_a_callback_closes_the_client() -> None:
    fixture = Fixture()
    machine, service = dropped(fixture)
    registry = service.contexts[None].registry
    registry.notices.running.add(1)  # the callback, which has not returned
    fixture.do(machine, service.close(), 0.5)
    assert not fixture.store.table.entries["a"].holds
    assert not registry.table
