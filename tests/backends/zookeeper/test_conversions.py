"""Conversions beside other requests of the same lock, on the model of a ZooKeeper server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from verification.models.zookeeper_model import Model
from verification.simulation.simulator import Faults, Machine, Simulator
from verification.simulation.zoo_connection import SimulatedConnection

from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.queue_order import CURATOR, KAZOO
from leaselock._backends.zookeeper.requests import Delete, Read
from leaselock._backends.zookeeper.semaphores import MOST_AT_ONCE
from leaselock._core.contract.backend import Busy, Claim, Converted, Grant
from leaselock._core.contract.effects import FOREVER, Signal, Wait
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leaselock._core.contract.backend import Mode

SESSION = 60.0


class Client:
    """The backend of a simulated client, and its only claim."""

    def __init__(self, simulator: Simulator, model: Model, name: str, mode: Mode) -> None:
        self.machine = Machine(simulator, name)
        connection: Any = SimulatedConnection(model, self.machine)
        self.backend = QueueBackend(connection, "/locks", KAZOO, self.machine.now)
        self.claim = Claim("a", f"{name}:1", name, SESSION, "{}", 0.0, mode=mode)

    def acquire(self, *, wait: bool = True) -> Coroutine[Any, Any, Grant | Busy]:
        return self.backend.acquire(self.claim, wait=wait, until=FOREVER)

    def convert(
        self, mode: Mode, step: int = 1, until: float = FOREVER
    ) -> Coroutine[Any, Any, Converted]:
        return self.backend.convert(self.claim, step, mode, until)

    def release(self, *, tombstone: bool = False) -> Coroutine[Any, Any, bool]:
        return self.backend.release(self.claim, tombstone=tombstone, until=FOREVER)


class Fixture:
    """A server, and its clients."""

    def __init__(self) -> None:
        self.simulator = Simulator(1, {}, Faults())
        simulator = self.simulator
        self.model = Model(lambda: simulator.time, simulator.after, lambda _: True, SESSION)

    def client(self, name: str, mode: Mode) -> Client:
        return Client(self.simulator, self.model, name, mode)

    def holder(self, name: str, mode: Mode) -> Client:
        """Return a client that holds the lock."""
        client = self.client(name, mode)
        assert isinstance(self.do(client, client.acquire(wait=False)), Grant)
        return client

    def delete(self) -> None:
        """Delete the nodes of all clients, as an operator may."""
        for node in [node for node in self.model.tree.nodes.values() if node.session]:
            self.model.tree.remove(node.path)

    def play(self) -> None:
        self.simulator.play(self.simulator.time + 0.5)

    def do(self, client: Client, operation: Coroutine[Any, Any, Any]) -> Any:
        run = client.machine.start(operation)
        self.play()
        assert run.ended
        if run.error is not None:
            raise run.error
        return run.result


def test_a_reader_whose_reply_was_lost_gets_a_greater_token_than_the_write_before() -> None:
    """Its node is younger than the writer's. But the writer, which an upgrade had overtaken, drew
    its token after the reader had listed the nodes, and the reply that says so was lost.
    """
    fixture = Fixture()
    update, writer = fixture.client("u", "update"), fixture.client("w", "exclusive")
    reader = fixture.client("r", "shared")
    fixture.do(update, update.acquire(wait=False))
    assert isinstance(fixture.do(writer, writer.acquire()), Busy)
    assert fixture.do(update, update.convert("exclusive")).held.mode == "exclusive"
    fixture.do(update, update.release())

    batch, written, released = reader.backend.batch, Signal(), Signal()

    async def lost(until: float, *requests: Any, **terms: Any) -> Any:
        if not isinstance(requests[0], Read):
            return await batch(until, *requests, **terms)
        await Wait(written, FOREVER)
        await batch(until, *requests, **terms)
        await Wait(released, FOREVER)
        raise OutcomeUnknown("the reply was lost")

    reader.backend.batch = lost  # type: ignore[method-assign]
    run = reader.machine.start(reader.acquire())
    fixture.play()
    write = fixture.do(writer, writer.acquire())
    assert isinstance(write, Grant)
    written.set()
    fixture.play()
    fixture.do(writer, writer.release())
    released.set()
    fixture.play()
    assert isinstance(run.error, OutcomeUnknown)
    reader.backend.batch = batch  # type: ignore[method-assign]
    read = fixture.do(reader, reader.acquire())
    assert isinstance(read, Grant)
    assert read.token > write.token


@pytest.mark.parametrize("tombstone", [False, True])
@pytest.mark.parametrize(("mode", "then"), [("exclusive", "shared"), ("update", "exclusive")])
def test_a_release_deletes_what_a_conversion_creates_meanwhile(
    mode: Mode, then: Mode, tombstone: bool
) -> None:
    """The renewer may be repeating a conversion whose reply was lost."""
    fixture = Fixture()
    client = fixture.client("c", mode)
    assert isinstance(fixture.do(client, client.acquire(wait=False)), Grant)
    batch = client.backend.batch
    converted: list[Converted] = []

    async def beside(until: float, *requests: Any, **terms: Any) -> Any:
        if isinstance(requests[0], Delete) and not converted:
            converted.append(await client.convert(then))
        return await batch(until, *requests, **terms)

    client.backend.batch = beside  # type: ignore[method-assign]
    assert fixture.do(client, client.release(tombstone=tombstone))
    assert [one.held.mode for one in converted if one.held] == [then]
    assert not [node.path for node in fixture.model.tree.nodes.values() if node.session]


def test_what_does_not_hold_is_not_converted() -> None:
    fixture = Fixture()
    client = fixture.client("c", "update")
    assert fixture.do(client, client.convert("exclusive")).held is None


def test_conversions_of_one_hold_are_done_one_after_the_other() -> None:
    fixture = Fixture()
    client = fixture.holder("c", "update")
    batch, answered = client.backend.batch, Signal()

    async def late(until: float, *requests: Any, **terms: Any) -> Any:
        await Wait(answered, FOREVER)
        return await batch(until, *requests, **terms)

    client.backend.batch = late  # type: ignore[method-assign]
    first = client.machine.start(client.convert("exclusive"))
    fixture.play()
    second = client.machine.start(client.convert("update", 2))
    hasty = client.machine.start(client.convert("update", 2, client.machine.now() + 0.1))
    fixture.play()
    assert isinstance(hasty.error, OutcomeUnknown)
    assert "still being converted" in str(hasty.error)
    assert not first.ended
    answered.set()
    fixture.play()
    assert first.result.held.mode == "exclusive"
    assert second.result.held.mode == "update"


def test_an_earlier_conversion_that_is_repeated_changes_nothing() -> None:
    fixture = Fixture()
    client = fixture.holder("c", "update")
    upgraded = fixture.do(client, client.convert("exclusive", 2))
    assert fixture.do(client, client.convert("update", 1)).held == upgraded.held
    # So does the same conversion, again.
    assert fixture.do(client, client.convert("exclusive", 3)).held.mode == "exclusive"


@pytest.mark.parametrize(("mode", "then"), [("exclusive", "shared"), ("update", "exclusive")])
def test_a_hold_whose_node_was_deleted_has_ended(mode: Mode, then: Mode) -> None:
    fixture = Fixture()
    client = fixture.holder("c", mode)
    fixture.delete()
    assert fixture.do(client, client.convert(then)).held is None


def test_a_replacement_that_was_not_confirmed_is_finished_first() -> None:
    """Its nodes were deleted meanwhile: the hold has ended."""
    fixture = Fixture()
    client = fixture.holder("c", "exclusive")
    batch = client.backend.batch

    async def lost(until: float, *requests: Any, **terms: Any) -> Any:
        raise OutcomeUnknown("the reply was lost")

    client.backend.batch = lost  # type: ignore[method-assign]
    with pytest.raises(OutcomeUnknown):
        fixture.do(client, client.convert("shared"))
    client.backend.batch = batch  # type: ignore[method-assign]
    fixture.delete()
    assert fixture.do(client, client.convert("exclusive", 2)).held is None


# --- nodes of others ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("node", "reason"),
    [("_c_1-lock-0000000000", "shared with Curator"), ("_c_1-__WRIT__0000000000", "read-write")],
)
def test_a_lock_is_not_shared_with_programs_that_do_not_wait_for_it(node: str, reason: str) -> None:
    fixture = Fixture()
    for path in ("/locks", "/locks/a", f"/locks/a/{node}"):
        assert fixture.model.tree.make(path, b"", 0)
    client = fixture.client("c", "exclusive")
    with pytest.raises(NotApplied, match=reason):
        fixture.do(client, client.acquire())
    assert not [one for one in fixture.model.tree.nodes.values() if one.session]


def test_a_read_write_lock_of_curator_is_not_shared_with_other_locks() -> None:
    fixture = Fixture()
    for path in ("/locks", "/locks/a", "/locks/a/_c_1-lock-0000000000"):
        assert fixture.model.tree.make(path, b"", 0)
    client = fixture.client("c", "exclusive")
    client.backend = QueueBackend(client.backend.connection, "/locks", CURATOR, client.machine.now)
    client.claim = client.claim._replace(of_rwlock=True)
    with pytest.raises(NotApplied, match="that a read-write lock of Curator does not wait for"):
        fixture.do(client, client.acquire())


def test_more_permits_than_fit_into_one_request_are_refused() -> None:
    fixture = Fixture()
    client = fixture.client("c", "permits")
    client.claim = client.claim._replace(permits=MOST_AT_ONCE + 1, limit=MOST_AT_ONCE + 1)
    with pytest.raises(NotApplied, match="do not fit into one transaction"):
        fixture.do(client, client.acquire())
