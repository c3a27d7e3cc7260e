"""The store of examples/nats_store, installed like another distribution, on a real server."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest
from testkit.adapter import CHECKS, Check, run_check
from testkit.conformance import SCENARIOS, Scenario, Store
from testkit.installed import installed
from testkit.servers.nats import Nats
from testkit.servers.process import HOST
from tests.conformance.matrix import drivers, name, run
from tests.pace import pace

import leaselock
from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.nightly,  # the server is built from its Go module
    # nats-py leaves the socket of a connection that fails to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with a bucket."""
    pytest.importorskip("nats")
    made = tmp_path_factory.mktemp("site-packages")
    with installed(made, nats="examples.nats_store.leaselock_nats:STORE"), Nats() as server:
        address = f"{HOST}:{server.port}"
        with leaselock.Client(f"nats://{address}") as client:
            assert list(client.setup()) == ["create the bucket 'leaselock'"]
            assert list(client.setup()) == []
        yield address


def fresh(server: str) -> str:
    """A prefix without documents."""
    return f"nats://{server}/leaselock/{uuid.uuid4().hex}"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_adapter(check: Check, server: str) -> None:
    if reason := run_check(check, fresh(server), server, pace()):
        pytest.skip(reason)


@pytest.mark.parametrize(
    ("scenario", "driver"),
    [(scenario, driver) for scenario in SCENARIOS for driver in drivers(scenario)],
    ids=name,
)
def test_nats(
    scenario: Scenario, driver: str, server: str, max_waiters: int | None, tmp_path: Path
) -> None:
    store = Store(
        "nats",
        lambda folder: fresh(server),
        protocols=("document",),
        confirm_within=CONFIRM_WITHIN,
        min_hold=True,
        sharing=True,
        updates=True,
        permits=True,
        # Each request passes through the thread of the event loop.
        reply_factor=3.0,
        max_waiters=100,
    )
    run(scenario, store, driver, tmp_path, max_waiters)


def test_a_bucket_that_is_missing_is_named_with_the_command_that_creates_it(server: str) -> None:
    with (
        leaselock.Client(f"nats://{server}/missing") as client,
        pytest.raises(leaselock.NotApplied, match="no such bucket: run `leaselock setup`"),
    ):
        client.lock("a").acquire(timeout=0)


@pytest.mark.parametrize("path", ["a b", "a/b/c", "a.b/c", "a/"])
def test_a_url_that_names_no_bucket_and_prefix_is_refused(server: str, path: str) -> None:
    with pytest.raises(ValueError, match="nats://host:4222/bucket/prefix"):
        leaselock.Client(f"nats://{server}/{path.replace(' ', '%20')}")
