"""`cancel`: which waits it ends, at which moments, and what the others send because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.core.test_modes import acquired, modes_in_store, side
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.contract.backend import Acquire, Convert
from leaselock.errors import AcquireCancelled, ClientClosed

if TYPE_CHECKING:
    from leaselock._core.client.lease_handle import LeaseHandle


def test_a_wait_is_cancelled_before_its_first_request_is_answered() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None))
    mutex = mutex_of(service)
    fixture.store.late = (Acquire,)
    run = fixture.begin(machine, mutex.acquire(None))
    fixture.store.late = ()
    fixture.simulator.play(fixture.simulator.time + 1.0)
    assert not run.ended
    again = mutex_of(service)
    fixture.store.late = (Acquire,)
    late = machine.start(again.acquire(None))
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert again.cancel() == 1
    assert again.cancel() == 0
    fixture.simulator.play(fixture.simulator.time + 1.0)
    assert isinstance(late.error, AcquireCancelled)
    assert not run.ended
    assert mutex.cancel() == 1
    fixture.simulator.play(fixture.simulator.time + 1.0)
    assert isinstance(run.error, AcquireCancelled)
    assert not fixture.store.table.entries["a"].queue


# --- upgrades -------------------------------------------------------------------------------------


def upgrading(fixture: Fixture) -> bool:
    return "upgrading" in modes_in_store(fixture)


@pytest.mark.parametrize("late", [(), (Convert,)], ids=["waiting", "asking"])
@pytest.mark.parametrize("by", ["lease", "write side"])
def test_a_wait_for_an_upgrade_is_cancelled(late: tuple[type, ...], by: str) -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    read = fixture.do(other, side(rival, "shared").acquire(None))
    update, write = side(service, "update"), side(service, "exclusive")

    async def wait() -> None:
        handle = await update.acquire(None)
        assert handle is not None
        fixture.store.late = late
        with pytest.raises(AcquireCancelled):
            await (handle.upgrade(None) if by == "lease" else write.acquire(None))
        fixture.store.late = ()
        handle.ensure()
        assert handle.hold.modes == ["update"]
        # The hold is an update again at once: new readers are let in.
        assert modes_in_store(fixture) == ["shared", "update"]

    run = machine.start(wait())
    fixture.simulator.play(fixture.simulator.time + 0.1)
    assert upgrading(fixture)
    cancelled, not_concerned = (update, write) if by == "lease" else (write, update)
    assert not_concerned.cancel() == 0
    assert cancelled.cancel() == 1
    fixture.simulator.play(fixture.simulator.time + 3.0)
    assert run.ended
    assert run.error is None
    assert cancelled.cancel() == 0
    fixture.do(other, read.release())


def test_of_two_waits_for_one_upgrade_the_other_goes_on() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    read = fixture.do(other, side(rival, "shared").acquire(None))
    update, nested = side(service, "update"), side(service, "update")

    async def both() -> tuple[LeaseHandle, LeaseHandle]:
        return acquired(await update.acquire(None)), acquired(await nested.acquire(None))

    one, two = fixture.do(machine, both())
    runs = [fixture.begin(machine, handle.upgrade(None)) for handle in (one, two)]
    assert update.cancel() == 1
    fixture.simulator.play(fixture.simulator.time + 0.5)
    assert isinstance(runs[0].error, AcquireCancelled)
    assert not runs[1].ended
    assert upgrading(fixture)
    fixture.do(other, read.release())
    assert runs[1].result is True
    assert modes_in_store(fixture) == ["exclusive"]


def test_an_upgrade_whose_client_is_closed_during_its_request_waits_no_more() -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    read = fixture.do(other, side(rival, "shared").acquire(None))
    handle = fixture.do(machine, side(service, "update").acquire(None))
    fixture.store.late = (Convert,)
    run = machine.start(handle.upgrade(None))
    fixture.simulator.play(fixture.simulator.time + 0.1)
    fixture.store.late = ()
    fixture.do(machine, service.close())
    assert isinstance(run.error, ClientClosed)
    fixture.do(other, read.release())
