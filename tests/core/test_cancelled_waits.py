"""`cancel`: which waits it ends, at which moments, and what the others send because of it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.core.test_local import client_of
from tests.core.test_local import mutex_of as handed_on
from tests.core.test_modes import acquired, modes_in_store, side
from tests.core.test_service import Scene, mutex_of

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
    scene = Scene()
    machine, service = scene.client()
    other, rival = scene.client("two")
    scene.do(other, mutex_of(rival).acquire(None))
    mutexes = [mutex_of(service) for _ in range(MANY + 1)]
    runs = [machine.start(mutex.acquire(None)) for mutex in mutexes]
    scene.simulator.play(scene.simulator.time + 0.5)
    order = list(scene.store.table.entries["a"].queue)
    before = len(scene.store.seen)
    waits = next(iter(mutexes[at].waiting))
    assert mutexes[at].cancel() == 1
    scene.simulator.play(scene.simulator.time + 0.5)
    assert isinstance(runs[at].error, AcquireCancelled)
    assert [run.ended for run in runs].count(False) == MANY
    # It leaves the queue. The store notifies the first one, and the one behind.
    sent = scene.store.seen[before:]
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
    scene = Scene()
    machine, service = client_of(scene)
    other, rival = scene.client("two")
    scene.do(other, mutex_of(rival).acquire(None))
    mutex = wait_of(waiting, service)()
    scene.store.late = (Acquire,)
    run = scene.begin(machine, mutex.acquire(None))
    scene.store.late = ()
    scene.simulator.play(scene.simulator.time + 1.0)
    assert not run.ended
    again = wait_of(waiting, service)()
    scene.store.late = (Acquire,)
    late = machine.start(again.acquire(None))
    scene.simulator.play(scene.simulator.time + 0.1)
    assert again.cancel() == 1
    assert again.cancel() == 0
    scene.simulator.play(scene.simulator.time + 1.0)
    assert isinstance(late.error, AcquireCancelled)
    assert not run.ended
    assert mutex.cancel() == 1
    scene.simulator.play(scene.simulator.time + 1.0)
    assert isinstance(run.error, AcquireCancelled)
    assert not scene.store.table.entries["a"].queue


def test_with_local_handoff_the_next_waiter_asks_the_store() -> None:
    scene = Scene()
    machine, service = client_of(scene)
    other, rival = scene.client("two")
    held = scene.do(other, mutex_of(rival).acquire(None))
    mutexes = [handed_on(service) for _ in range(3)]
    runs = [scene.begin(machine, mutex.acquire(None)) for mutex in mutexes]
    before = len(scene.store.seen)
    # The second one waits for the first, which asks the store for all.
    for number, requests in ((1, 0), (0, 1)):
        assert mutexes[number].cancel() == 1
        scene.simulator.play(scene.simulator.time + 0.1)
        assert isinstance(runs[number].error, AcquireCancelled)
        assert len(scene.store.seen) - before == requests
    scene.do(other, held.release(), 0.5)
    assert runs[2].error is None
    assert runs[2].result.hold.token > held.hold.token


# --- upgrades -------------------------------------------------------------------------------------


def upgrading(scene: Scene) -> bool:
    return "upgrading" in modes_in_store(scene)


@pytest.mark.parametrize("late", [(), (Convert,)], ids=["waiting", "asking"])
@pytest.mark.parametrize("by", ["lease", "write side"])
def test_a_wait_for_an_upgrade_is_cancelled(late: tuple[type, ...], by: str) -> None:
    scene = Scene()
    machine, service = scene.client()
    other, rival = scene.client("two")
    read = scene.do(other, side(rival, "shared").acquire(None))
    update, write = side(service, "update"), side(service, "exclusive")

    async def wait() -> None:
        handle = await update.acquire(None)
        assert handle is not None
        scene.store.late = late
        with pytest.raises(AcquireCancelled):
            await (handle.upgrade(None) if by == "lease" else write.acquire(None))
        scene.store.late = ()
        handle.ensure()
        assert handle.hold.modes == ["update"]
        # The hold is an update again at once: new readers are let in.
        assert modes_in_store(scene) == ["shared", "update"]

    run = machine.start(wait())
    scene.simulator.play(scene.simulator.time + 0.1)
    assert upgrading(scene)
    cancelled, not_concerned = (update, write) if by == "lease" else (write, update)
    assert not_concerned.cancel() == 0
    assert cancelled.cancel() == 1
    scene.simulator.play(scene.simulator.time + 3.0)
    assert run.ended
    assert run.error is None
    assert cancelled.cancel() == 0
    scene.do(other, read.release())


def test_of_two_waits_for_one_upgrade_the_other_goes_on() -> None:
    scene = Scene()
    machine, service = scene.client()
    other, rival = scene.client("two")
    read = scene.do(other, side(rival, "shared").acquire(None))
    update, nested = side(service, "update"), side(service, "update")

    async def both() -> tuple[LeaseHandle, LeaseHandle]:
        return acquired(await update.acquire(None)), acquired(await nested.acquire(None))

    one, two = scene.do(machine, both())
    runs = [scene.begin(machine, handle.upgrade(None)) for handle in (one, two)]
    assert update.cancel() == 1
    scene.simulator.play(scene.simulator.time + 0.5)
    assert isinstance(runs[0].error, AcquireCancelled)
    assert not runs[1].ended
    assert upgrading(scene)
    scene.do(other, read.release())
    assert runs[1].result is True
    assert modes_in_store(scene) == ["exclusive"]


def test_an_upgrade_whose_client_is_closed_during_its_request_waits_no_more() -> None:
    scene = Scene()
    machine, service = scene.client()
    other, rival = scene.client("two")
    read = scene.do(other, side(rival, "shared").acquire(None))
    handle = scene.do(machine, side(service, "update").acquire(None))
    scene.store.late = (Convert,)
    run = machine.start(handle.upgrade(None))
    scene.simulator.play(scene.simulator.time + 0.1)
    scene.store.late = ()
    scene.do(machine, service.close())
    assert isinstance(run.error, ClientClosed)
    scene.do(other, read.release())


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
