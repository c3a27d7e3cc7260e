"""Contention: a holder follows the queue of its lock, and ends with its hold."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any

from tests.core.test_service import Fixture, Refusing, answer_by, mutex_of

from leaselock._core.client.contention import Contention
from leaselock._core.client.upgrade import upgrade
from leaselock._core.contract.backend import Inspect, Watch, Watched
from leaselock._core.contract.effects import FOREVER, Sleep
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine, Run

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.lease_handle import LeaseHandle

LEASE = 30.0
INTERVAL = LEASE / 3


class Quiet(Refusing):
    """A backend that sends no notifications of changes."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.capabilities = self.capabilities._replace(notifies_changes=False)


class QuietFixture(Fixture):
    """A simulator with such backends."""

    backend_type = Quiet


def looks(fixture: Fixture) -> int:
    """How often the queue was looked at."""
    return sum(isinstance(request, Watch | Inspect) for request in fixture.store.seen)


def told_by(handle: LeaseHandle, machine: Machine) -> list[float]:
    """Have a callback note when it is called."""
    told: list[float] = []
    handle.on_contended(lambda its: told.append(machine.now()), handle, lambda its: its)
    return told


def waiting(fixture: Fixture, name: str = "two") -> tuple[Run, ClientCore]:
    """Another client, which begins to wait."""
    machine, service = fixture.client(name)
    return machine.start(mutex_of(service, lease=LEASE).acquire(60.0)), service


def test_the_first_waiter_is_pushed() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        told = told_by(handle, machine)
        await Sleep(machine.now() + 1.0)
        assert (told, handle.contended()) == ([], False)
        began = machine.now()
        waiting(fixture)
        waiting(fixture, "three")
        await Sleep(machine.now() + 1.0)
        assert len(told) == 1
        assert told[0] - began < 0.5
        assert handle.contended()
        # One that asks later is told of what is known.
        late = told_by(handle, machine)
        await Sleep(machine.now() + 0.1)
        assert len(late) == 1
        # While others wait, more waiters cost the holder nothing.
        before = looks(fixture)
        waiting(fixture, "four")
        await Sleep(machine.now() + 1.0)
        assert looks(fixture) == before
        await handle.release()
        assert not handle.contended()

    fixture.do(machine, whole(), 10.0)


def test_a_callback_is_not_called_after_the_release() -> None:
    """It was to be, when the lease ended."""
    fixture = Fixture()
    machine, service = fixture.client()
    told: list[object] = []

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        handle.on_contended(told.append, handle, lambda its: its)
        handle.on_danger(1.0, told.append, handle, lambda its: its)
        observer = handle.hold.contention
        assert isinstance(observer, Contention)
        observer._note(contended=True)
        handle.registry.notices.callbacks += handle.hold.take_danger_callbacks(FOREVER)
        assert len(handle.registry.notices.callbacks) == 2
        await handle.release()
        await Sleep(machine.now() + 1.0)

    fixture.do(machine, whole(), 10.0)
    assert told == []


def test_an_upgrade_that_waits_for_a_reader_contends() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, another = fixture.client("two")

    async def upgrading() -> None:
        update = await mutex_of(another, mode="update", lease=LEASE).acquire(None)
        assert await upgrade(another.context(None).registry, update.hold, FOREVER, None)
        assert not update.contended()
        await update.release()

    async def whole() -> None:
        handle = await mutex_of(service, mode="shared", lease=LEASE).acquire(None)
        told = told_by(handle, machine)
        run = other.start(upgrading())
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert handle.contended()
        assert len(told) == 1
        await handle.release()
        await Sleep(machine.now() + 1.0)
        assert run.ended

    fixture.do(machine, whole(), 60.0)


def test_without_notifications_the_queue_is_looked_at_as_often_as_the_lease_is_renewed() -> None:
    fixture = QuietFixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        told = told_by(handle, machine)
        await Sleep(machine.now() + 1.0)
        assert looks(fixture) == 1
        began = machine.now()
        other, theirs = waiting(fixture)
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert len(told) == 1
        assert told[0] - began <= INTERVAL
        await theirs.close()
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert other.ended
        assert not handle.contended()
        waiting(fixture, "three")
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert len(told) == 2
        assert looks(fixture) <= 6
        await handle.release()
        before = looks(fixture)
        await Sleep(machine.now() + 2 * INTERVAL)
        assert looks(fixture) == before

    fixture.do(machine, whole(), 100.0)


def test_a_store_that_does_not_answer_tells_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    ask, failing = backend.request, [True]

    async def refused(request: Watch, until: float) -> Any:
        if failing:
            raise NotApplied("out of reach")
        return await ask(request, until)

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        answer_by(backend, Watch, refused)
        told = told_by(handle, machine)
        waiting(fixture)
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert (told, handle.contended()) == ([], False)
        failing.clear()
        await Sleep(machine.now() + INTERVAL + 1.0)
        assert len(told) == 1
        await handle.release()

    fixture.do(machine, whole(), 40.0)


def test_a_queue_that_cannot_be_read_tells_nothing() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    backend: Any = service.contexts[None].registry.backend
    ask = backend.request

    async def damaged(request: Watch, until: float) -> Any:
        reply = await ask(request, until)
        return Watched(reply.state._replace(unreadable="damaged"), 0.0, notified=False)

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        answer_by(backend, Watch, damaged)
        told = told_by(handle, machine)
        waiting(fixture)
        await Sleep(machine.now() + 2 * INTERVAL)
        assert told == []
        await handle.release()

    fixture.do(machine, whole(), 40.0)


def test_a_lost_lease_is_not_contended() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        waiting(fixture)
        handle.contended()
        await Sleep(machine.now() + 1.0)
        assert handle.contended()
        handle.hold.lose("for the test")
        assert not handle.contended()

    fixture.do(machine, whole(), 40.0)


def test_a_released_lease_is_not_told() -> None:
    """Nor is a nested one that was released, although its hold goes on."""
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        mutex = mutex_of(service, lease=LEASE)
        handle = await mutex.acquire(None)
        nested = await mutex.acquire(None)
        told = told_by(nested, machine)
        await nested.release()
        assert told_by(nested, machine) == []
        waiting(fixture)
        await Sleep(machine.now() + 1.0)
        assert (told, handle.contended(), nested.contended()) == ([], True, False)
        await handle.release()
        # Nothing follows a hold that was released before it could begin.
        again = await mutex_of(service, "b").acquire(None)
        before = looks(fixture)
        assert not again.contended()
        await again.release()
        await Sleep(machine.now() + 1.0)
        assert looks(fixture) == before

    fixture.do(machine, whole(), 10.0)


def test_a_release_during_a_look_ends_it() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    registry = service.contexts[None].registry
    backend: Any = registry.backend
    ask = backend.request

    async def slow(wanted: Any, until: float) -> Any:
        reply = await ask(wanted, until)
        await Sleep(machine.now() + 1.0)
        return reply

    async def whole() -> None:
        handle = await mutex_of(service, lease=LEASE).acquire(None)
        backend.request = slow
        assert not handle.contended()
        await Sleep(machine.now() + 0.5)
        assert len(registry.observers) == 1
        await handle.release()
        await Sleep(machine.now() + 1.0)
        assert registry.observers == set()

    fixture.do(machine, whole())


def test_the_end_of_the_client_ends_it() -> None:
    for kind in (Fixture, QuietFixture):
        fixture = kind()
        machine, service = fixture.client()

        async def whole(
            fixture: Fixture = fixture, machine: Machine = machine, service: ClientCore = service
        ) -> None:
            handle = await mutex_of(service, lease=LEASE).acquire(None)
            told_by(handle, machine)
            await Sleep(machine.now() + 1.0)
            registry = service.contexts[None].registry
            assert len(registry.observers) == 1
            began = machine.now()
            await service.close()
            assert machine.now() - began < 0.5
            assert registry.observers == set()

        fixture.do(machine, whole(), 10.0)


def test_it_keeps_no_hold_alive() -> None:
    fixture = Fixture()
    machine, service = fixture.client()

    async def whole() -> None:
        handle: Any = await mutex_of(service, lease=LEASE).acquire(None)
        told_by(handle, machine)
        await Sleep(machine.now() + 1.0)
        handle.hold.owned = False  # no warning
        del handle
        gc.collect()
        await Sleep(machine.now() + LEASE / 3)  # when it would be renewed
        assert service.contexts[None].registry.observers == set()

    fixture.do(machine, whole(), 20.0)
