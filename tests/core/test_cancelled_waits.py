"""`cancel`: which waits it ends, at which moments, and what the others send because of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.core.test_local import client_of
from tests.core.test_local import mutex_of as handed_on
from tests.core.test_modes import acquired, modes_in_store, side
from tests.core.test_service import Fixture, mutex_of

import leaselock
from leaselock._core.backend import Acquire, Convert, Release
from leaselock.errors import AcquireCancelled, ClientClosed

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.client_core import ClientCore
    from leaselock._core.lease_handle import LeaseHandle
    from leaselock._core.mutex import Mutex

MANY = 200


@pytest.mark.parametrize("at", [1, MANY // 2, MANY])
def test_cancelling_one_of_many_waits_sends_nothing_for_the_others(at: int) -> None:
    fixture = Fixture()
    machine, service = fixture.client()
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None))
    mutexes = [mutex_of(service) for _ in range(MANY + 1)]
    runs = [machine.start(mutex.acquire(None)) for mutex in mutexes]
    fixture.simulator.play(fixture.simulator.time + 0.5)
    order = list(fixture.store.table.entries["a"].queue)
    before = len(fixture.store.seen)
    waits = next(iter(mutexes[at].waiting))
    assert mutexes[at].cancel() == 1
    fixture.simulator.play(fixture.simulator.time + 0.5)
    assert isinstance(runs[at].error, AcquireCancelled)
    assert [run.ended for run in runs].count(False) == MANY
    # It leaves the queue. The store notifies the first one, and the one behind.
    sent = fixture.store.seen[before:]
    assert [each.claim for each in sent if isinstance(each, Release)] == [waits.claim]
    asked = {each.claim.id for each in sent if isinstance(each, Acquire)}
    behind = order.index(waits.claim.id) + 1
    assert asked <= {order[0], *order[behind : behind + 1]}
    assert len(sent) == 1 + len(asked)


def wait_of(waiting: str, service: ClientCore) -> Callable[[], Mutex]:
    return {
        "store": lambda: mutex_of(service),
        "local hand-off": lambda: handed_on(service),
    }[waiting]


@pytest.mark.parametrize("waiting", ["store", "local hand-off"])
def test_a_wait_is_cancelled_before_its_first_request_is_answered(waiting: str) -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    other, rival = fixture.client("two")
    fixture.do(other, mutex_of(rival).acquire(None))
    mutex = wait_of(waiting, service)()
    fixture.store.late = (Acquire,)
    run = fixture.begin(machine, mutex.acquire(None))
    fixture.store.late = ()
    fixture.simulator.play(fixture.simulator.time + 1.0)
    assert not run.ended
    again = wait_of(waiting, service)()
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


def test_with_local_handoff_the_next_waiter_asks_the_store() -> None:
    fixture = Fixture()
    machine, service = client_of(fixture)
    other, rival = fixture.client("two")
    held = fixture.do(other, mutex_of(rival).acquire(None))
    mutexes = [handed_on(service) for _ in range(3)]
    runs = [fixture.begin(machine, mutex.acquire(None)) for mutex in mutexes]
    before = len(fixture.store.seen)
    # The second one waits for the first, which asks the store for all.
    for number, requests in ((1, 0), (0, 1)):
        assert mutexes[number].cancel() == 1
        fixture.simulator.play(fixture.simulator.time + 0.1)
        assert isinstance(runs[number].error, AcquireCancelled)
        assert len(fixture.store.seen) - before == requests
    fixture.do(other, held.release(), 0.5)
    assert runs[2].error is None
    assert runs[2].result.hold.token > held.hold.token


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


def test_a_wait_that_hands_nothing_on_is_cancelled_in_the_store() -> None:
    """The client shares leases among its tasks, and a reader waits in the store itself."""

    async def main() -> None:
        url = "memory://cancelled-reader"
        async with (
            leaselock.AsyncClient(url) as other,
            leaselock.AsyncClient(url) as client,
            client.lock("a", local_handoffs=2),
            other.lock("b"),
        ):
            reader = client.rwlock("b").read
            waiting = asyncio.ensure_future(reader.acquire())
            while not await reader.waiters():  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert reader.cancel() == 1
            with pytest.raises(AcquireCancelled):
                await waiting

    asyncio.run(main())
