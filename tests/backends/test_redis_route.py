"""Who does not answer is asked last from then on: a question has time for one silence only."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
from holdfast.backends.redis.route import Cluster, Sentinels
from holdfast.backends.redis.steps import Address, Send
from holdfast.errors import StoreError, Unknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.backends.redis.steps import Steps

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
            step = steps.throw(Unknown("no answer")) if late else steps.send(reply(step))
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
        async with holdfast.AsyncClient(url, op_timeout=0.2) as client:
            await client.lock("a").acquire(timeout=0)

    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"redis://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(StoreError, match=r":\d+: \w+"):
            asyncio.run(attempt(url))
        with (
            holdfast.Client(url, op_timeout=0.2) as client,
            pytest.raises(StoreError, match=r":\d+: \w+"),
        ):
            client.lock("a").acquire(timeout=0)
