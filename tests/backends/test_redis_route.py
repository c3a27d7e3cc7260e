"""Who does not answer is asked last from then on: a question has time for one silence only."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Any

import pytest

import leaselock
from leaselock.backends.redis.hash import Hash
from leaselock.backends.redis.keys import slot_of
from leaselock.backends.redis.route import Cluster, Sentinels
from leaselock.backends.redis.steps import Address, Pause, Send, Waiting, unheard
from leaselock.backends.redis.talk import Talk
from leaselock.core.backend import Claim, Renew
from leaselock.errors import NotApplied, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.steps import Steps

DEAD, FIRST, SECOND = Address("dead", 1), Address("first", 2), Address("second", 3)
MAP = [[[0, 16383, [b"first", 2]]], [b"0", 0]]


def reply(step: Send) -> Any:
    assert not isinstance(step.commands, bytes)
    verb = step.commands[0][0]
    return {"SENTINEL": [[b"first", b"2"]], "ROLE": [[b"master"]], "CLUSTER": MAP}[str(verb)]


def asked(steps: Steps[Any], silent: Callable[[Address], bool]) -> list[Address]:
    """Who is asked, in one question: after a silence there is no time for another answer."""
    order: list[Address] = []
    late = False
    try:
        step = next(steps)
        while True:
            assert isinstance(step, Send)
            order.append(step.address)
            late = late or silent(step.address)
            step = steps.throw(OutcomeUnknown("no answer")) if late else steps.send(reply(step))
    except StopIteration:
        return order


def find(route: Sentinels | Cluster) -> list[Address]:
    """The question after one that was in vain, and found the dead one silent."""
    with pytest.raises(Exception, match="dead"):
        asked(route.find("a"), lambda address: address == DEAD)
    route.forget()
    return asked(route.find("a"), lambda address: address == DEAD)


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
    route = Cluster((DEAD, FIRST))

    def refused() -> None:
        steps = route.find("a")
        try:
            next(steps)
            while True:
                steps.throw(StoreError("no"))
        except StopIteration:
            raise AssertionError from None

    for _ in range(2):
        with pytest.raises(Exception, match=r"dead.*first|first.*dead"):
            refused()


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
    locks = Hash(Talk(Cluster((FIRST, SECOND, DEAD))), lambda claim: "", 0, "hash", lambda: 0.0)
    route = locks.talk.route
    assert isinstance(route, Cluster)
    owners = dict(zip(CLAIMS, (DEAD, FIRST, SECOND), strict=True))
    ranges = [
        [s, s, [o.host.encode(), o.port]] for c, o in owners.items() if (s := slot_of(c.name))
    ]

    def answers(step: Any) -> list[Any]:
        if isinstance(step, Pause):
            raise AssertionError("nobody said that it passes")
        if step.address == DEAD:
            raise OutcomeUnknown("no answer")
        if step.commands[0][0] == "CLUSTER":
            return [ranges, [b"0", 0]]
        return [[1] * ((len(step.commands[0]) - 4) // 4)]

    def renewed() -> list[bool | None]:
        return [*driven(locks.renew(Renew(CLAIMS)), answers)]

    with contextlib.suppress(OutcomeUnknown):
        renewed()
    assert renewed() == [None, True, True]


def driven(steps: Steps[Any], answers: Callable[[Any], Any]) -> Any:
    """What comes of a conversation with those answers."""
    try:
        step = next(steps)
        while True:
            try:
                outcome = answers(step)
            except StoreError as error:
                step = steps.throw(error)
            else:
                step = steps.send(outcome)
    except StopIteration as done:
        return done.value


def test_a_master_that_is_cut_off_from_the_others_is_left() -> None:
    """It has the old map, and says that the cluster is down; another one knows who leads now."""
    talk = Talk(Cluster((FIRST, SECOND)))

    def answers(step: Any) -> Any:
        if isinstance(step, Pause):
            return step.attempt < 3
        if step.commands[0][0] == "CLUSTER":
            return [[[0, 16383, [step.address.host.encode(), step.address.port]]], [b"0", 0]]
        return [b"1"] if step.address == SECOND else [Exception("CLUSTERDOWN The cluster is down")]

    assert driven(talk.ask("a", (("GET", "a"),)), answers) == [b"1"]


def test_a_subscription_that_is_refused_half_way_is_asked_for_again() -> None:
    """A server that takes a question over does not yet take its subscription over."""
    talk = Talk(Cluster((FIRST,)))
    asked: list[Address] = []

    def answers(step: Any) -> Any:
        if isinstance(step, Pause):
            return False
        if step.commands[0][0] == "CLUSTER":
            return MAP
        asked.append(step.address)
        if step.address == FIRST:
            return [Exception("ASK 0 second:3")]
        return unheard(step.address, Exception("MOVED 0 first:2"), len(step.commands))

    waiting = Waiting(CLAIMS[0], ("channel",), sharded=True)
    with pytest.raises(NotApplied, match="ASK"):
        driven(talk.ask("a", (("GET", "a"),), waiting=waiting), answers)
    assert len(asked) > 2
