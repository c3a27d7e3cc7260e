"""Waits that would block the thread of the holder, in virtual time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.core.test_service import Fixture, mutex_of

from leaselock._core.client import shared_thread
from leaselock._core.contract.backend import Inspect
from leaselock._core.contract.effects import Owner, OwnerThread, Sleep
from leaselock.errors import WouldDeadlock

if TYPE_CHECKING:
    from collections.abc import Coroutine, Sequence

    from verification.simulation.simulator import Machine, Run

    from leaselock._core.client.client_core import ClientCore


class Loop:
    """A client whose processes are tasks of one thread, and another client."""

    def __init__(self) -> None:
        self.fixture = Fixture()
        self.thread = OwnerThread()
        self.thread.has_tasks = True
        self.machine, self.service = self.fixture.client("loop")
        self.machine.blocks_thread = True
        self.other, self.theirs = self.fixture.client("other")
        self.owners: dict[int, Owner] = {}

    def task(self, number: int, operation: Coroutine[Any, Any, Any]) -> Run:
        """Start a task."""
        return self.start(
            self.machine, Owner(f"task {number}", f"{number}", self.thread), operation
        )

    def stranger(self, operation: Coroutine[Any, Any, Any]) -> Run:
        """Start an operation of the other client."""
        return self.start(self.other, Owner("stranger", "9"), operation)

    def start(self, machine: Machine, owner: Owner, operation: Coroutine[Any, Any, Any]) -> Run:
        """Start an operation, and let it run for half a second."""
        run = machine.start(operation)
        run.owner = owner
        self.pass_time(0.5)
        return run

    def pass_time(self, seconds: float) -> None:
        """Let everything run."""
        self.fixture.simulator.play(self.fixture.simulator.time + seconds)


async def take(service: ClientCore, mode: str, seconds: float = 0.0, **options: Any) -> None:
    """Hold the lock for a while."""
    handle = await mutex_of(service, mode=mode, **options).acquire(None)
    assert handle is not None
    await Sleep(service.env.now() + seconds)
    await handle.release()


def test_a_wait_behind_a_writer_is_refused_when_the_store_answers() -> None:
    loop = Loop()
    loop.task(1, take(loop.service, "shared", 20.0))
    writer = loop.stranger(take(loop.theirs, "exclusive"))
    loop.fixture.store.silent = (Inspect,)
    reader = loop.task(2, take(loop.service, "shared"))
    loop.pass_time(3.0)
    assert not reader.ended, "what is ahead of it is not known"
    loop.fixture.store.silent = ()
    loop.pass_time(5.0)
    assert isinstance(reader.error, WouldDeadlock)
    assert reader.error.holder == "task 1"
    loop.pass_time(20.0)
    assert (writer.ended, writer.error) == (True, None)
    assert not loop.fixture.store.state("a").waiting


def test_a_wait_for_a_hold_that_has_ended_goes_on() -> None:
    """The fixed lease is over before the writer ahead, who was granted the lock, has released."""
    loop = Loop()
    loop.task(1, take(loop.service, "shared", 20.0, lease=2.0, renew=False))
    loop.stranger(take(loop.theirs, "exclusive", 6.0))
    loop.fixture.store.silent = (Inspect,)
    reader = loop.task(2, take(loop.service, "shared"))
    loop.pass_time(2.5)
    loop.fixture.store.silent = ()
    loop.pass_time(30.0)
    assert (reader.ended, reader.error) == (True, None)


def test_a_wait_behind_an_upgrade_that_waits_for_the_thread_is_refused() -> None:
    loop = Loop()
    loop.task(1, take(loop.service, "shared", 20.0))

    async def upgrade() -> None:
        handle = await mutex_of(loop.theirs, mode="update").acquire(None)
        assert handle is not None
        assert await handle.upgrade(None)
        await handle.release()

    upgraded = loop.stranger(upgrade())
    reader = loop.task(2, take(loop.service, "shared"))
    assert isinstance(reader.error, WouldDeadlock)
    loop.pass_time(30.0)
    assert (upgraded.ended, upgraded.error) == (True, None)


def test_a_wait_for_a_stranger_beside_holds_of_the_thread_goes_on() -> None:
    """The stranger's update lease excludes another one, not the reader of the thread."""
    loop = Loop()
    loop.stranger(take(loop.theirs, "update", 5.0))
    loop.task(1, take(loop.service, "shared", 20.0))
    update = loop.task(2, take(loop.service, "update"))
    loop.pass_time(10.0)
    assert (update.ended, update.error) == (True, None)


@pytest.mark.parametrize("blocks", [True, False])
def test_only_a_wait_that_blocks_the_thread_is_refused(blocks: bool) -> None:
    loop = Loop()
    loop.machine.blocks_thread = blocks
    loop.task(1, take(loop.service, "exclusive", 5.0))
    waiter = loop.task(2, take(loop.service, "exclusive"))
    loop.pass_time(10.0)
    assert waiter.ended
    assert isinstance(waiter.error, WouldDeadlock) is blocks


class Clients(Loop):
    """Two clients whose processes are tasks of one thread."""

    def __init__(self) -> None:
        super().__init__()
        self.other.blocks_thread = True

    def second(self, number: int, operation: Coroutine[Any, Any, Any]) -> Run:
        """Start a task that uses the second client."""
        owner = self.owners.setdefault(number, Owner(f"task {number}", f"{number}", self.thread))
        return self.start(self.other, owner, operation)

    def first(self, number: int, operation: Coroutine[Any, Any, Any]) -> Run:
        """Start a task that uses the first client."""
        owner = self.owners.setdefault(number, Owner(f"task {number}", f"{number}", self.thread))
        return self.start(self.machine, owner, operation)


@pytest.mark.parametrize(
    ("held", "wanted"),
    [("exclusive", "exclusive"), ("shared", "exclusive"), ("exclusive", "shared")],
)
def test_a_wait_for_another_client_of_the_thread_is_refused_at_once(held: str, wanted: str) -> None:
    loop = Clients()
    loop.first(1, take(loop.service, held, 20.0))
    waiter = loop.second(2, take(loop.theirs, wanted))
    assert isinstance(waiter.error, WouldDeadlock)
    assert waiter.error.holder == "task 1"
    assert not loop.fixture.store.state("a").waiting


def test_a_wait_for_a_client_of_the_thread_that_does_not_block_it_is_refused_at_once() -> None:
    loop = Clients()
    loop.machine.blocks_thread = False
    loop.first(1, take(loop.service, "exclusive", 20.0))
    waiter = loop.second(2, take(loop.theirs, "exclusive"))
    assert isinstance(waiter.error, WouldDeadlock)


def test_a_wait_for_what_the_thread_has_released_goes_on() -> None:
    """It stays taken for a while, because of `min_hold`."""
    loop = Clients()
    loop.first(1, take(loop.service, "exclusive", min_hold=3.0))
    waiter = loop.second(2, take(loop.theirs, "exclusive"))
    loop.pass_time(10.0)
    assert (waiter.ended, waiter.error) == (True, None)


def test_a_wait_of_the_holder_itself_goes_on_until_its_time_has_passed() -> None:
    """Another thread may release its lease."""
    loop = Clients()
    loop.first(1, take(loop.service, "exclusive", 3.0))
    waiter = loop.second(1, take(loop.theirs, "exclusive"))
    loop.pass_time(10.0)
    assert (waiter.ended, waiter.error) == (True, None)


def test_a_wait_for_permits_is_refused_whether_their_number_is_known_or_not() -> None:
    for limit in (2, 0):
        loop = Clients()
        two: dict[str, Any] = {"mode": "permits", "permits": 2}
        handle = loop.fixture.do(loop.machine, mutex_of(loop.service, **two).acquire(None, 2))
        handle.hold.acquirer, handle.hold.thread = None, loop.thread
        permits: dict[str, Any] = {"mode": "permits", "permits": limit or None}
        waiter = loop.second(2, take(loop.theirs, **permits))
        assert isinstance(waiter.error, WouldDeadlock)


def test_a_wait_for_one_of_several_readers_in_the_thread_is_refused() -> None:
    """The store names the oldest reader, which is a stranger."""
    loop = Clients()
    loop.stranger(take(loop.theirs, "shared", 5.0))
    loop.first(1, take(loop.service, "shared", 20.0))
    writer = loop.second(2, take(loop.theirs, "exclusive"))
    assert isinstance(writer.error, WouldDeadlock)
    assert writer.error.holder == "task 1"
    assert not loop.fixture.store.state("a").waiting


async def upgrade(service: ClientCore, held: list[Any]) -> None:
    """Write beside readers."""
    held.append(await mutex_of(service, mode="update").acquire(None))
    assert await held[0].upgrade(None)


def test_a_wait_beside_a_hold_of_the_same_name_in_another_store_goes_on() -> None:
    loop = Clients()
    elsewhere = Fixture()
    elsewhere.simulator.play(0.3)  # tokens are known by the time of the grant
    machine, service = elsewhere.client("elsewhere")
    run = machine.start(take(service, "exclusive", 30.0))
    run.owner = Owner("task 1", "1", loop.thread)
    elsewhere.simulator.play(elsewhere.simulator.time + 0.5)
    for wait in (take(loop.theirs, "exclusive"), upgrade(loop.theirs, [])):
        loop.stranger(take(loop.theirs, "shared", 3.0))
        waiter = loop.second(2, wait)
        loop.pass_time(10.0)
        assert (waiter.ended, waiter.error) == (True, None)


def test_an_upgrade_beside_a_reader_of_another_client_of_the_thread_is_refused() -> None:
    loop, held = Clients(), list[Any]()
    loop.first(1, take(loop.service, "shared", 5.0))
    waiter = loop.second(2, upgrade(loop.theirs, held))
    assert isinstance(waiter.error, WouldDeadlock)
    assert waiter.error.holder == "task 1"
    modes = [each.record.mode for each in loop.fixture.store.state("a").holds]
    assert modes == ["shared", "update"]


def test_a_claim_that_is_not_in_the_queue_is_not_blocked() -> None:
    """Others wait, but for a permit that is free, or for permits of another client."""
    loop = Loop()
    permits: dict[str, Any] = {"mode": "permits", "permits": 3}
    held = loop.fixture.do(loop.machine, mutex_of(loop.service, **permits).acquire(None))
    loop.stranger(take_permits(loop.theirs, 2))
    loop.stranger(take_permits(loop.theirs, 1))
    registry = loop.service.contexts[None].registry
    claim = held.hold.claim._replace(id="not in the queue")
    asked = loop.fixture.do(loop.machine, shared_thread.is_blocked(registry, claim, [held.hold]))
    assert asked is False
    assert [waiting.permits for waiting in waiting_for("a", loop)] == [1]


async def take_permits(service: ClientCore, permits: int) -> None:
    """Hold permits for a while."""
    handle = await mutex_of(service, mode="permits", permits=3).acquire(None, permits)
    await Sleep(service.env.now() + 20.0)
    await handle.release()


def waiting_for(name: str, loop: Loop) -> Sequence[Any]:
    """The queue in the store."""
    return loop.fixture.store.state(name).waiting
