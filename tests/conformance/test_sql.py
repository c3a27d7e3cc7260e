"""The conformance suite on PostgreSQL and MariaDB, in each protocol, as a user with few rights.

Each scenario is played in every protocol; which database, and whether threads or asyncio, goes
round. In all combinations: LEASELOCK_CONFORMANCE=all (some five minutes).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.conformance.share import ALL
from tests.servers.databases import emptied

from leaselock.core.rules import RECHECK_INTERVAL
from leaselock.testing.conformance import DRIVERS, SCENARIOS, Scenario, Store, play

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PROTOCOLS = ("lease", "row", "advisory")
DATABASES = ("postgres", "mariadb")
SESSION = 6.0


def store_on(
    server: object, protocol: str, database: str = "", worker: Callable[[Any], str] = str
) -> Store:
    # PyMySQL is pure Python: on a busy machine a crowd takes its time.
    slow = 20.0 if database == "mariadb" else 10.0

    def fresh(folder: Path) -> str:
        emptied(server)  # type: ignore[arg-type]
        return f"{worker(server)}?protocol={protocol}&session={SESSION}"

    if protocol == "lease":
        # One that dies in its turn is noticed when the next looks again.
        return Store(protocol, fresh, PROTOCOLS, claim_time=RECHECK_INTERVAL, slow=slow, crowd=200)
    return Store(
        protocol,
        fresh,
        PROTOCOLS,
        # The server has a queue, but whoever waits asks anew every second.
        fair=False,
        life=True,
        detach=False,
        claim_time=2 * SESSION,
        slow=slow,
        # Each that waits has a connection, of which a small server has not many.
        crowd=50,
        session=SESSION,
    )


def combinations() -> Iterator[tuple[str, str, Scenario, str]]:
    for n, scenario in enumerate(SCENARIOS):
        for m, protocol in enumerate(PROTOCOLS):
            store = store_on(None, protocol)
            fit = [driver for driver in DRIVERS if scenario.unfit(store, driver) is None]
            drivers = fit or DRIVERS
            if ALL:
                yield from ((d, protocol, scenario, c) for d in DATABASES for c in DRIVERS)
            else:
                yield DATABASES[(n + m) % 2], protocol, scenario, drivers[n // 2 % len(drivers)]


@pytest.mark.parametrize(
    ("database", "protocol", "scenario", "driver"),
    list(combinations()),
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_sql(
    database: str,
    protocol: str,
    scenario: Scenario,
    driver: str,
    as_worker: Callable[[Any], str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
) -> None:
    store = store_on(request.getfixturevalue(database), protocol, database, as_worker)
    if reason := scenario.unfit(store, driver):
        pytest.skip(reason)
    play(scenario, store, driver, tmp_path)
