"""Conversions beside other requests of the same lock, on the model of a ZooKeeper server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.models.zookeeper_model import Model
from tests.simulation.world import Faults, Machine, World
from tests.simulation.zoo_connection import SimulatedConnection

from leaselock.backends.zookeeper.queue import QueueBackend
from leaselock.backends.zookeeper.queue_order import KAZOO
from leaselock.backends.zookeeper.requests import Delete, Read
from leaselock.core.backend import Busy, Claim, Converted, Grant
from leaselock.core.effects import FOREVER, Signal, Wait
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from leaselock.core.backend import Mode

SESSION = 60.0


class Client:
    """The backend of a simulated client, and its only claim."""

    def __init__(self, world: World, model: Model, name: str, mode: Mode) -> None:
        self.machine = Machine(world, name)
        connection: Any = SimulatedConnection(model, self.machine)
        self.backend = QueueBackend(connection, "/locks", KAZOO, self.machine.now)
        self.claim = Claim("a", f"{name}:1", name, SESSION, "{}", 0.0, mode=mode)

    def acquire(self, *, wait: bool = True) -> Coroutine[Any, Any, Grant | Busy]:
        return self.backend.acquire(self.claim, wait=wait, until=FOREVER)

    def convert(self, mode: Mode) -> Coroutine[Any, Any, Converted]:
        return self.backend.convert(self.claim, 1, mode, FOREVER)

    def release(self, *, tombstone: bool = False) -> Coroutine[Any, Any, bool]:
        return self.backend.release(self.claim, tombstone=tombstone, until=FOREVER)


class Scene:
    """A server, and its clients."""

    def __init__(self) -> None:
        self.world = World(1, {}, Faults())
        world = self.world
        self.model = Model(lambda: world.time, world.after, lambda _: True, SESSION)

    def client(self, name: str, mode: Mode) -> Client:
        return Client(self.world, self.model, name, mode)

    def play(self) -> None:
        self.world.play(self.world.time + 0.5)

    def do(self, client: Client, process: Coroutine[Any, Any, Any]) -> Any:
        run = client.machine.start(process)
        self.play()
        assert run.ended
        if run.error is not None:
            raise run.error
        return run.result


def test_a_reader_whose_reply_was_lost_gets_a_greater_token_than_the_write_before() -> None:
    """Its node is younger than the writer's. But the writer, which an upgrade had overtaken, drew
    its token after the reader had listed the nodes, and the reply that says so was lost.
    """
    scene = Scene()
    update, writer = scene.client("u", "update"), scene.client("w", "exclusive")
    reader = scene.client("r", "shared")
    scene.do(update, update.acquire(wait=False))
    assert isinstance(scene.do(writer, writer.acquire()), Busy)
    assert scene.do(update, update.convert("exclusive")).held.mode == "exclusive"
    scene.do(update, update.release())

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
    scene.play()
    write = scene.do(writer, writer.acquire())
    assert isinstance(write, Grant)
    written.set()
    scene.play()
    scene.do(writer, writer.release())
    released.set()
    scene.play()
    assert isinstance(run.error, OutcomeUnknown)
    reader.backend.batch = batch  # type: ignore[method-assign]
    read = scene.do(reader, reader.acquire())
    assert isinstance(read, Grant)
    assert read.token > write.token


@pytest.mark.parametrize("tombstone", [False, True])
@pytest.mark.parametrize(("mode", "then"), [("exclusive", "shared"), ("update", "exclusive")])
def test_a_release_deletes_what_a_conversion_creates_meanwhile(
    mode: Mode, then: Mode, tombstone: bool
) -> None:
    """The renewer may be repeating a conversion whose reply was lost."""
    scene = Scene()
    client = scene.client("c", mode)
    assert isinstance(scene.do(client, client.acquire(wait=False)), Grant)
    batch = client.backend.batch
    converted: list[Converted] = []

    async def beside(until: float, *requests: Any, **terms: Any) -> Any:
        if isinstance(requests[0], Delete) and not converted:
            converted.append(await client.convert(then))
        return await batch(until, *requests, **terms)

    client.backend.batch = beside  # type: ignore[method-assign]
    assert scene.do(client, client.release(tombstone=tombstone))
    assert [one.held.mode for one in converted if one.held] == [then]
    assert not [node.path for node in scene.model.tree.nodes.values() if node.session]
