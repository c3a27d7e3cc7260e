"""The conformance suite on a real etcd, by a user with only the rights that its page lists."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.etcd import Etcd
from tests.conformance.matrix import configuration, name, run

from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.no_cover

FOLDERS = count()


@pytest.fixture(scope="module")
def server() -> Iterator[Etcd]:
    with Etcd() as made:
        restrict(made)
        yield made


def restrict(server: Etcd) -> None:
    """Require a login, and add the user of `store_on`."""
    server.require_login()
    server.add_user("worker", "pw", "test")


def store_on(server: Etcd, **options: object) -> Store:
    """A store with a new prefix for each scenario."""
    return Store(
        "etcd",
        lambda folder: server.url(f"test{next(FOLDERS)}", "worker:pw", **options),
        protocols=("document",),
        confirm_within=CONFIRM_WITHIN,
        min_hold=True,
        sharing=True,
        updates=True,
        permits=True,
        max_waiters=100,
    )


@pytest.mark.parametrize(("scenario", "driver"), configuration("etcd", one_in=2), ids=name)
def test_etcd(
    scenario: Scenario, driver: str, server: Etcd, max_waiters: int | None, tmp_path: Path
) -> None:
    run(scenario, store_on(server), driver, tmp_path, max_waiters)


POLLING = configuration("etcd without watches", one_in=8)


@pytest.mark.parametrize(("scenario", "driver"), POLLING, ids=name)
def test_etcd_without_watches(
    scenario: Scenario,
    driver: str,
    server: Etcd,
    max_waiters: int | None,
    tmp_path: Path,
) -> None:
    store = store_on(server, watch="no")._replace(notifies_holder=False)
    run(scenario, store, driver, tmp_path, max_waiters)
