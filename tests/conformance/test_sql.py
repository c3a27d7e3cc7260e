"""The conformance suite on PostgreSQL and MariaDB, in each protocol, as a user with few rights.

Each scenario runs with every protocol on PostgreSQL, and some of them on MariaDB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.databases import emptied
from tests.conformance import matrix
from tests.conformance.matrix import configuration, name, run

from leaselock._core.rows.rules import RECHECK_INTERVAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.no_cover

PROTOCOLS = ("lease", "row", "advisory")
SESSION = 6.0


def store_on(
    server: object, protocol: str, database: str = "", worker: Callable[[Any], str] = str
) -> Store:
    # PyMySQL is pure Python: on a busy machine many waiters are slow.
    slow = 20.0 if database == "mariadb" else 10.0

    def fresh(folder: Path) -> str:
        emptied(server)  # type: ignore[arg-type]
        return f"{worker(server)}?protocol={protocol}&session={SESSION}"

    if protocol == "lease":
        # The death of a granted waiter is noticed when the next one rechecks.
        return Store(
            protocol,
            fresh,
            PROTOCOLS,
            min_hold=True,
            sharing=True,
            updates=True,
            permits=True,
            confirm_within=RECHECK_INTERVAL,
            reply_factor=slow,
            max_waiters=200,
        )
    return Store(
        protocol,
        fresh,
        PROTOCOLS,
        # The server has a queue, but each waiter repeats its request every second.
        fair=False,
        notifies_holder=False,
        detects_death=True,
        detachable=False,
        sharing=protocol == "row" or database == "postgres",
        downgrades=protocol == "advisory",
        confirm_within=2 * SESSION,
        reply_factor=slow,
        # Each waiter takes a connection, and a small server allows few.
        max_waiters=50,
        session_timeout=SESSION,
    )


PARTS = [
    *matrix.protocol("postgres", "postgres", "lease"),
    *matrix.protocol("row", "postgres", "row"),
    *matrix.protocol("advisory", "postgres", "advisory"),
    *configuration("mariadb lease", "mariadb", "lease", one_in=2),
    *configuration("mariadb row", "mariadb", "row", one_in=4),
    *configuration("mariadb advisory", "mariadb", "advisory", one_in=4),
]


@pytest.mark.parametrize(("database", "protocol", "scenario", "driver"), PARTS, ids=name)
def test_sql(
    database: str,
    protocol: str,
    scenario: Scenario,
    driver: str,
    as_worker: Callable[[Any], str],
    request: pytest.FixtureRequest,
    max_waiters: int | None,
    tmp_path: Path,
) -> None:
    store = store_on(request.getfixturevalue(database), protocol, database, as_worker)
    run(scenario, store, driver, tmp_path, max_waiters)
