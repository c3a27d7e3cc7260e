"""A server that does not answer is asked last: a request has time for one silence only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest
from tests.models.redis_runner import Runner, commands_of

import leaselock
from leaselock.backends.redis.keys import slot_of
from leaselock.backends.redis.messages import Address
from leaselock.backends.redis.topology import Cluster, Sentinels
from leaselock.core.backend import Acquire, Claim, Renew
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.redis.messages import Command, Send

DEAD, FIRST, SECOND = Address("dead", 1), Address("first", 2), Address("second", 3)
MAP = [[[0, 16383, [b"first", 2]]], [b"0", 0]]


def reply(commands: Sequence[Command]) -> Any:
    verb = str(commands[0][0])
    return {"SENTINEL": [[b"first", b"2"]], "ROLE": [[b"master"]], "CLUSTER": MAP}[verb]


def asked(topology: Sentinels | Cluster, silent: Callable[[Address], bool]) -> list[Address]:
    """Which servers one request asks: after a silence there is no time for another answer."""
    order: list[Address] = []
    late = False

    async def send(address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        nonlocal late
        order.append(address)
        late = late or silent(address)
        if late:
            raise OutcomeUnknown("no answer")
        return list(reply(commands))

    with contextlib.suppress(StopIteration):
        topology.find("a", send, 0.0).send(None)
    return order


def find(topology: Sentinels | Cluster) -> list[Address]:
    """What is asked after a request that was in vain, and found the dead one silent."""
    with pytest.raises(Exception, match="dead"):
        asked(topology, lambda address: address == DEAD)
    topology.forget()
    return asked(topology, lambda address: address == DEAD)


def test_a_silent_sentinel_is_asked_last() -> None:
    route = Sentinels((DEAD, FIRST, SECOND), "main", lambda: 0.0)
    assert find(route)[0] == FIRST
    assert route.known("a") == FIRST


def test_a_silent_node_of_a_cluster_is_asked_last() -> None:
    route = Cluster((DEAD, FIRST, SECOND))
    assert find(route)[0] == FIRST
    assert route.known("a") == FIRST


def test_a_silent_master_of_a_cluster_is_asked_last() -> None:
    """The one that is known to be a master is asked for the map before the seeds are."""
    route = Cluster((FIRST, SECOND))
    route.known_masters = [DEAD]
    assert find(route)[0] == FIRST


def test_all_are_asked_where_all_refuse() -> None:
    topology = Cluster((DEAD, FIRST))

    async def refuse(address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        raise StoreError("no")

    for _ in range(2):
        with pytest.raises(Exception, match=r"dead.*first|first.*dead"):
            topology.find("a", refuse, 0.0).send(None)


def test_a_server_that_never_speaks_is_named_with_the_reason() -> None:
    """In asyncio, a time that is over says nothing by itself."""

    async def attempt(url: str) -> None:
        async with leaselock.AsyncClient(url, op_timeout=0.2) as client:
            await client.lock("a").acquire(timeout=0)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(StoreError, match=r":\d+: \w+"):
            asyncio.run(attempt(url))
        with (
            leaselock.Client(url, op_timeout=0.2) as client,
            pytest.raises(StoreError, match=r":\d+: \w+"),
        ):
            client.lock("a").acquire(timeout=0)


CLAIMS = [Claim(name, f"{'0' * 32}:{i}", "0" * 32, 1.0, "{}", 1.0) for i, name in enumerate("abc")]


def test_a_silent_master_of_a_cluster_ends_no_lease_on_another() -> None:
    """What is on the others is renewed first, from the second try on."""
    owners = dict(zip(CLAIMS, (DEAD, FIRST, SECOND), strict=True))
    ranges = [
        [s, s, [o.host.encode(), o.port]] for c, o in owners.items() if (s := slot_of(c.name))
    ]

    def answer(address: Address, message: Send) -> list[Any]:
        (command, *_) = commands_of(message)
        if address == DEAD:
            raise OutcomeUnknown("no answer")
        if command[0] == b"CLUSTER":
            return [ranges, [b"0", 0]]
        return [[1] * ((len(command) - 4) // 4)]

    runner = Runner("redis+cluster://first:2,second:3,dead:1", answer)
    backend = runner.store.backend("hash")

    def renewed() -> list[bool | None]:
        return [*runner.run(backend.carry_out(Renew(CLAIMS), 0.0))]

    with contextlib.suppress(OutcomeUnknown):
        renewed()
    assert renewed() == [None, True, True]


def test_a_master_that_is_cut_off_from_the_others_is_left() -> None:
    """It has the old map, and says that the cluster is down; another one knows the new master."""

    def answer(address: Address, message: Send) -> list[Any]:
        if commands_of(message)[0][0] == b"CLUSTER":
            return [[[0, 16383, [address.host.encode(), address.port]]], [b"0", 0]]
        return [b"1"] if address == SECOND else [Exception("CLUSTERDOWN The cluster is down")]

    runner = Runner("redis+cluster://first:2,second:3", answer)
    executor = runner.store.executor
    assert runner.run(executor.ask("a", (("GET", "a"),), 1.0)) == [b"1"]


def test_a_subscription_that_is_refused_half_way_is_asked_for_again() -> None:
    """A server that carries a command out during a move may not yet take its subscription."""
    asked: list[Address] = []

    def answer(address: Address, message: Send) -> list[Any]:
        commands = commands_of(message)
        if commands[0][0] == b"CLUSTER":
            return MAP
        asked.append(address)
        if address == FIRST:
            return [Exception("ASK 0 second:3")]
        for _, channel in message.subscriptions:
            runner.store.listener.waiting[CLAIMS[0].id].group.connection.refused[channel] = (
                Exception("MOVED 0 first:2")
            )
        return [b"OK", *(b"1" for _ in commands[1:])]

    runner = Runner("redis+cluster://first:2", answer)
    # Queued from the start: what is tested is the request with subscriptions.
    runner.store.queue.note_contention("a")
    backend = runner.store.backend("hash")
    with pytest.raises(NotApplied, match="ASK"):
        runner.run(backend.carry_out(Acquire(CLAIMS[0], True), 0.0))
    assert len(asked) > 2
