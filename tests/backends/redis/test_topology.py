"""A silent server is tried last, because a request has time for one timeout only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest
from verification.models.redis_runner import Runner, commands_of

import leaselock
from leaselock._backends.redis.keys import slot_of
from leaselock._backends.redis.messages import Address, Unreachable
from leaselock._backends.redis.topology import Cluster, Sentinels, Single
from leaselock._core.contract.backend import Acquire, Claim, Renew
from leaselock._core.contract.effects import Call, Wait
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock._backends.redis.codec import Command
    from leaselock._backends.redis.messages import Send

DEAD, FIRST, SECOND = Address("dead", 1), Address("first", 2), Address("second", 3)
MAP = [[[0, 16383, [b"first", 2]]], [b"0", 0]]


def reply(commands: Sequence[Command]) -> Any:
    verb = str(commands[0][0])
    return {"SENTINEL": [[b"first", b"2"]], "ROLE": [[b"master"]], "CLUSTER": MAP}[verb]


def asked(topology: Sentinels | Cluster, silent: Callable[[Address], bool]) -> list[Address]:
    """Return the servers that one request contacts; it has time for one timeout only."""
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
    """Return the servers contacted after a failed request that found the dead server silent."""
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
    """A known master is asked for the slot map before the seeds are."""
    route = Cluster((FIRST, SECOND))
    route.known_masters = [DEAD]
    assert find(route)[0] == FIRST


def test_all_servers_are_tried_if_all_refuse() -> None:
    topology = Cluster((DEAD, FIRST))

    async def refuse(address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        raise StoreError("no")

    for _ in range(2):
        with pytest.raises(Exception, match=r"dead.*first|first.*dead"):
            topology.find("a", refuse, 0.0).send(None)


def test_a_silent_server_is_named_with_the_reason() -> None:
    """In asyncio a timeout alone has no message."""

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
    """From the second try on, the locks on other masters are renewed first."""
    owners = dict(zip(CLAIMS, (DEAD, FIRST, SECOND), strict=True))
    slots = {slot_of(f"lock:{claim.name}"): owner for claim, owner in owners.items()}
    ranges = [[slot, slot, [o.host.encode(), o.port]] for slot, o in slots.items()]

    def answer(address: Address, message: Send) -> list[Any]:
        (command, *_) = commands_of(message)
        if address == DEAD:
            raise OutcomeUnknown("no answer")
        if command[0] == b"CLUSTER":
            return [ranges, [b"0", 0]]
        return [[1] * ((len(command) - 4) // 3)]

    runner = Runner("redis+cluster://first:2,second:3,dead:1", answer)
    backend = runner.store.backend("hash")

    def renewed() -> list[bool | None]:
        return [*runner.run(backend.request(Renew(CLAIMS), 0.0))]

    with contextlib.suppress(OutcomeUnknown):
        renewed()
    assert renewed() == [None, True, True]


def test_a_master_separated_from_the_cluster_is_abandoned() -> None:
    """It has the old map and reports a failed cluster; another node knows the new master."""

    def answer(address: Address, message: Send) -> list[Any]:
        if commands_of(message)[0][0] == b"CLUSTER":
            return [[[0, 16383, [address.host.encode(), address.port]]], [b"0", 0]]
        return [b"1"] if address == SECOND else [Exception("CLUSTERDOWN The cluster is down")]

    runner = Runner("redis+cluster://first:2,second:3", answer)
    executor = runner.store.executor
    assert runner.run(executor.ask("a", (("GET", "a"),), 1.0)) == [b"1"]


def test_clients_that_failed_together_try_again_at_different_times() -> None:
    def second_try(chance: float) -> float:
        replies = [Exception("LOADING Redis is loading the dataset in memory"), b"1"]
        runner = Runner("redis://first:2", lambda address, message: [replies.pop(0)])
        runner.chance = chance
        assert runner.run(runner.store.executor.ask("a", (("GET", "a"),), 1.0)) == [b"1"]
        return runner.time

    assert second_try(0.9) > 5 * second_try(0.0) > 0.0


def test_a_subscription_refused_during_a_move_is_repeated() -> None:
    """During a move a server may execute a command and still refuse the subscription."""
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
    # Queued from the start, so that the request has subscriptions.
    runner.store.queue.note_contention("a")
    backend = runner.store.backend("hash")
    with pytest.raises(NotApplied, match="ASK"):
        runner.run(backend.request(Acquire(CLAIMS[0], True), 0.0))
    assert len(asked) > 2


# --- strange answers ------------------------------------------------------------------------------


def answering(replies: dict[str, Any]) -> Any:
    """Return a sender that answers each command by its first word."""

    async def send(address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        found = replies[str(commands[0][0])]
        return list(found) if isinstance(found, list) else [found]

    return send


def result(operation: Any) -> Any:
    """Return the result of an operation that waits for nothing."""
    with pytest.raises(StopIteration) as ended:
        operation.send(None)
    return ended.value.value


REFUSED = Exception("NOPERM")
NAMED = [[b"first", b"2"]]


@pytest.mark.parametrize(
    ("replies", "reason"),
    [
        ({"SENTINEL": REFUSED}, "NOPERM"),
        ({"SENTINEL": [None]}, "it knows no such master"),
        ({"SENTINEL": NAMED, "ROLE": REFUSED}, "NOPERM"),
        ({"SENTINEL": NAMED, "ROLE": [[b"slave"]]}, "first:2 is no master yet"),
    ],
)
def test_a_sentinel_that_names_no_master_says_why(replies: dict[str, Any], reason: str) -> None:
    topology = Sentinels((SECOND,), "main", lambda: 0.0)
    waits = "no master yet" in reason
    with pytest.raises(Unreachable if waits else NotApplied, match=f"'main' .*{reason}"):
        result(topology.find("a", answering(replies), 0.0))


@pytest.mark.parametrize(
    ("second", "final"),
    [
        (Unreachable("no answer"), True),
        ({"SENTINEL": [None]}, True),
        ({"SENTINEL": NAMED, "ROLE": [[b"slave"]]}, False),
        ({"SENTINEL": NAMED, "ROLE": Unreachable("no answer")}, False),
        ({"SENTINEL": [Exception("BUSY")]}, False),
    ],
    ids=["silent", "agrees", "names a replica", "names a silent server", "is busy"],
)
def test_a_wrong_name_is_final_if_no_sentinel_knows_it(second: Any, final: bool) -> None:
    topology = Sentinels((SECOND, DEAD), "main", lambda: 0.0)

    async def send(address: Address, commands: Sequence[Command], until: float) -> list[Any]:
        if address == SECOND:
            return [None]
        found = second if isinstance(second, Exception) else second[commands[0][0]]
        if isinstance(found, Exception):
            raise found
        return list(found)

    with pytest.raises(NotApplied if final else Unreachable, match="no such master"):
        result(topology.find("a", send, 0.0))


def test_sentinels_have_one_master() -> None:
    topology = Sentinels((SECOND,), "main", lambda: 0.0)
    sender = answering({"SENTINEL": NAMED, "ROLE": [[b"master"]]})
    assert result(topology.masters(sender, 0.0)) == (FIRST,)
    assert result(topology.masters(sender, 0.0)) == (FIRST,)
    assert not topology.is_silent("a")
    with pytest.raises(NotApplied, match="part of a cluster"):
        topology.moved(1, SECOND)


def test_a_single_server_is_the_only_one() -> None:
    topology = Single(FIRST)
    assert result(topology.find("a", answering({}), 0.0)) == FIRST
    assert not topology.is_silent("a")
    with pytest.raises(NotApplied, match=r"write redis\+cluster://first:2"):
        topology.moved(1, SECOND)


@pytest.mark.parametrize(
    ("slots", "reason"),
    [
        ([[b"zero", 5, [b"first", 2]]], "not known here"),
        ([[0, 16384, [b"first", 2]]], "a slot 16384"),
        ([[0, 5, b"first"]], "not known here"),
    ],
)
def test_a_map_that_makes_no_sense_is_refused(slots: Any, reason: str) -> None:
    with pytest.raises(NotApplied, match=reason):
        result(Cluster((FIRST,)).find("a", answering({"CLUSTER": [slots, [b"0", 0]]}), 0.0))


def test_a_cluster_without_the_slot_or_the_map_cannot_be_reached() -> None:
    topology = Cluster((FIRST,))
    with pytest.raises(Unreachable, match="no node of the cluster has slot"):
        result(topology.find("a", answering({"CLUSTER": [[], [b"0", 0]]}), 0.0))
    with pytest.raises(NotApplied, match=r"no node of the cluster answers .*NOPERM"):
        result(topology.find("a", answering({"CLUSTER": [REFUSED, [b"0", 0]]}), 0.0))
    busy = {"CLUSTER": [Exception("BUSY"), [b"0", 0]]}
    with pytest.raises(Unreachable, match=r"no node of the cluster answers .*BUSY"):
        result(topology.find("a", answering(busy), 0.0))


def test_the_masters_of_a_cluster_are_those_of_its_slots() -> None:
    slots = [[0, 99, [b"first", 2]], [100, 16383, [None, 3]]]
    topology = Cluster((SECOND,))
    found = result(topology.masters(answering({"CLUSTER": [slots, REFUSED]}), 0.0))
    assert found == [FIRST, SECOND]
    assert not topology.sharded
    topology.moved(slot_of("a"), DEAD)
    assert topology.known("a") == DEAD


class Searching:
    """Requests that ask at the same time which server has a key, each stepped by hand."""

    def __init__(self, url: str, answer: Callable[[Address, Send], list[Any]]) -> None:
        self.runner = Runner(url, answer)
        self.executor = self.runner.store.executor
        self.requests = [self.executor.find("a", 9.0) for _ in range(3)]
        self.effects = [request.send(None) for request in self.requests]

    def answers(self) -> None:
        """Only the first one sends anything; the others wait for it."""
        assert isinstance(self.effects[0], Call)
        assert all(isinstance(effect, Wait) for effect in self.effects[1:])

    def finish(self, number: int) -> Address:
        """Carry out what a request asks for, to its end."""
        request, effect = self.requests[number], self.effects[number]
        error: Exception | None = None
        answer: Any = None
        while True:
            try:
                answer, error = self.runner._answer(effect), None
            except Exception as raised:
                error = raised
            try:
                effect = request.send(answer) if error is None else request.throw(error)
            except StopIteration as done:
                found: Address = done.value
                return found


SEARCHES = ("redis+sentinel://first/main", "redis+cluster://first")


def named(address: Address, message: Send) -> list[Any]:
    verb = bytes(commands_of(message)[0][0]).decode()  # type: ignore[arg-type]
    return list(reply([(verb,)]))


@pytest.mark.parametrize("url", SEARCHES)
def test_one_request_asks_for_all(url: str) -> None:
    searching = Searching(url, named)
    searching.answers()
    assert [searching.finish(number) for number in range(3)] == [FIRST] * 3


@pytest.mark.parametrize("url", SEARCHES)
def test_all_learn_that_no_server_answers(url: str) -> None:
    def silent(address: Address, message: Send) -> list[Any]:
        raise OutcomeUnknown("silent")

    searching = Searching(url, silent)
    for number in range(3):
        with pytest.raises(Unreachable, match="silent"):
            searching.finish(number)


@pytest.mark.parametrize("url", SEARCHES)
def test_another_one_asks_when_the_first_is_cancelled(url: str) -> None:
    searching = Searching(url, named)
    searching.requests[0].close()
    searching.effects[1] = searching.requests[1].send(True)
    searching.effects[2] = searching.requests[2].send(True)
    assert isinstance(searching.effects[1], Call)
    assert isinstance(searching.effects[2], Wait)
    assert [searching.finish(number) for number in (1, 2)] == [FIRST] * 2


def test_what_is_said_of_an_earlier_master_changes_nothing() -> None:
    """Requests that fail one after the other after a failover do not each ask again."""
    sentinels, cluster = Sentinels((SECOND,), "main", lambda: 0.0), Cluster((SECOND,))
    for topology in (sentinels, cluster):
        asked(topology, lambda address: False)
        topology.forget(DEAD)
        assert topology.known("a") == FIRST
        topology.forget(FIRST)
        assert topology.known("a") is None


def test_a_server_that_was_redirected_to_is_forgotten() -> None:
    cluster = Cluster((SECOND,))
    asked(cluster, lambda address: False)
    cluster.moved(slot_of("a"), SECOND)
    assert cluster.known("a") == SECOND
    cluster.forget(SECOND)
    assert cluster.known("a") is None
