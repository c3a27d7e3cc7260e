"""Watchers, and holders that follow the queue, are notified of each change by the server; without
the permission they look themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.conformance.contention import (
    first_waiter_is_reported_before_the_next_look,
)
from testkit.conformance.watching import each_change_is_reported, report_changes
from testkit.servers.redis import Redis
from testkit.servers.rights import additional, user
from tests.backends.redis.fixture import HARNESSES, STORE

from leaselock._backends.redis import backend
from leaselock._core.client import watching

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.conformance.harness import Harness

    from leaselock import LockChange

USERS = [
    "user default on nopass ~* &* +@all",
    user("watcher", "pw", "~*", more=additional("watching without polling")),
    user("looker", "pw", "~*"),
]
COLOURS = ("threads", "asyncio")


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis(acl=USERS) as server:
        yield server


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> None:
    """A watcher that is not notified sees no change."""
    monkeypatch.setattr(backend, "WATCH_INTERVAL", 1e6)
    monkeypatch.setattr(watching, "FIRST_INTERVAL", 1e6)


def harness_of(colour: str, server: Redis, folder: Path, name: str, query: str = "") -> Harness:
    server.ask("FLUSHALL")
    url = f"redis://{name}:pw@127.0.0.1:{server.port}/0{query}"
    return HARNESSES[colour](STORE, url, folder)


@pytest.mark.usefixtures("notified")
@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("query", ["", "?protocol=string"])
def test_each_change_is_notified(colour: str, query: str, server: Redis, tmp_path: Path) -> None:
    harness = harness_of(colour, server, tmp_path, "watcher", query)
    harness.run(harness.run_and_close(each_change_is_reported(harness)))


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("query", ["", "?protocol=string"])
def test_the_first_waiter_is_notified(
    colour: str, query: str, server: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, server, tmp_path, "watcher", query)
    scenario = first_waiter_is_reported_before_the_next_look(harness)
    harness.run(harness.run_and_close(scenario))


@pytest.mark.parametrize("colour", COLOURS)
def test_without_the_permission_the_watcher_looks(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, server, tmp_path, "looker")
    harness.run(harness.run_and_close(each_change_is_reported(harness)))


@pytest.mark.usefixtures("notified")
@pytest.mark.parametrize("colour", COLOURS)
def test_a_watcher_looks_when_its_connection_is_lost(
    colour: str, server: Redis, tmp_path: Path
) -> None:
    harness = harness_of(colour, server, tmp_path, "watcher")

    def tracked() -> bool:
        return "tracking_total_keys:1\r\n" in str(server.ask("INFO", "stats"))

    async def scenario() -> None:
        watcher = harness.client()
        changes: list[LockChange] = []
        peer = harness.spawn(report_changes, watcher.lock("a"), changes.append)
        await harness.wait_until(lambda: len(changes) == 1 and tracked())
        server.ask("CLIENT", "KILL", "USER", "watcher")
        await harness.must_acquire(harness.lock("a"))
        await harness.wait_until(lambda: len(changes) == 2)
        await watcher.close()
        assert await peer.end() is None

    harness.run(harness.run_and_close(scenario()))


@pytest.mark.usefixtures("notified")
@pytest.mark.parametrize("colour", COLOURS)
def test_lost_data_is_a_change(colour: str, server: Redis, tmp_path: Path) -> None:
    harness = harness_of(colour, server, tmp_path, "watcher")

    async def scenario() -> None:
        watcher = harness.client()
        changes: list[LockChange] = []
        await harness.must_acquire(harness.lock("a"))
        peer = harness.spawn(report_changes, watcher.lock("a"), changes.append)
        await harness.wait_until(lambda: len(changes) == 1)
        server.ask("FLUSHALL")
        await harness.wait_until(lambda: len(changes) == 2)
        await watcher.close()
        assert await peer.end() is None

    harness.run(harness.run_and_close(scenario()))
