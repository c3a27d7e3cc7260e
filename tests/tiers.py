"""Which tests `make test`, `make verify` and `make check` run.

tests/ is the first tier (`test`), which is deterministic; verification/ is the second (`verify`). A
mark beside the test says otherwise: one of MARKERS puts it into the second tier and says why, and
`first_tier` puts a module of verification/ into the first, except for its tests with one of
MARKERS. One rule adds marks here: that of servers that have a sibling in the first tier. `check` is
the part of the first tier that needs no server and hardly any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIERS = ("all", "test", "verify", "check")
MARKERS = ("timing", "statistical", "heavy", "variant")
# What is in verification/, and `make test` runs all the same.
FIRST_TIER = "first_tier"
FOLDER_OF_SECOND = "verification/"
# Servers and topologies that are in the second tier, by the fixture or the parameter that names
# one. Each has a sibling in the first.
SERVERS = {
    "mariadb": "heavy",
    "mariadb_server": "heavy",
    "pgbouncer": "variant",
    "sentinel": "variant",
    "sentinels": "variant",
    "cluster": "variant",
    "replicated": "variant",
}
# Coverage would make these slower, some several times, and shows nothing that the others do not.
UNCOVERED = (
    "verification/simulation/",
    "verification/models/",
    "tests/testing/",
    "tests/backends/",
    "tests/faults/",
    "tests/cli/",
    "tests/sql/",
    "tests/conformance/test_etcd.py",
    "tests/conformance/test_redis.py",
    "tests/conformance/test_sql.py",
    "tests/conformance/test_zookeeper.py",
    "tests/test_architecture.py",
)
# But these cover code that others do not.
COVERED = (
    "verification/simulation/test_deadlocks.py",
    "verification/simulation/test_election.py",
    "verification/simulation/test_cancelled_waits.py",
    "tests/backends/test_redlock_moments.py",
    "tests/backends/test_redlock_votes.py",
    "tests/backends/test_redis_doctor.py",
    "tests/backends/test_redis_settings.py",
)
CHECK = (
    "tests/core/",
    "tests/testing/",
    "tests/drivers/",
    # Of the others in tests/cli/ most start servers; two wait for the ends of leases.
    "tests/cli/test_child.py",
    "tests/cli/test_deadlocks.py",
    "tests/cli/test_leases.py",
    "tests/cli/test_maintenance.py",
    "tests/cli/test_modes.py",
    "tests/cli/test_process_one.py",
    "tests/cli/test_run.py",
    "tests/cli/test_signals.py",
    "tests/cli/test_top.py",
    "tests/cli/test_url_file.py",
    "tests/cli/test_usage.py",
    "tests/test_architecture.py",
    "tests/test_documents.py",
    "verification/simulation/test_simulation.py",
)
# Single tests here take longest. They come first, so that no process is left alone with one at the
# end: a process that has no tests left takes some of another's last ones.
LONG = (
    "verification/chaos/",
    "verification/hazards/",
    "verification/linearizability/",
    "tests/test_surroundings.py",
    "tests/test_secrets.py",
    "tests/test_benchmarks.py",
    "tests/faults/test_redis_cluster.py",
    "tests/backends/test_redis_lines.py",
)
COLLECTED = pytest.StashKey[list[pytest.Item]]()


def mark(item: pytest.Item) -> None:
    """Add the markers of this module."""
    if item.nodeid.startswith(UNCOVERED) and not item.nodeid.startswith(COVERED):
        item.add_marker("no_cover")
    for name in servers_of(item) & SERVERS.keys():
        item.add_marker(SERVERS[name])


def servers_of(item: pytest.Item) -> set[str]:
    """The names of the fixtures and parameters of a test."""
    names = set(getattr(item, "fixturenames", ()))
    return names | {value for value in params_of(item) if isinstance(value, str)}


def params_of(item: pytest.Item) -> list[object]:
    """The values of its parameters."""
    called = getattr(item, "callspec", None)
    return list(called.params.values()) if called else []


def tier_of(item: pytest.Item) -> str:
    """The tier of a test that has its markers."""
    if any(item.get_closest_marker(name) for name in MARKERS):
        return "verify"
    in_second = item.nodeid.startswith(FOLDER_OF_SECOND)
    return "verify" if in_second and not item.get_closest_marker(FIRST_TIER) else "test"


def selected(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """Those of a tier, the ones that take longest first."""
    if tier in ("test", "verify"):
        items = [item for item in items if tier_of(item) == tier]
    elif tier == "check":
        items = [item for item in items if tier_of(item) == "test"]
        items = [item for item in items if item.nodeid.startswith(CHECK)]
    return sorted(items, key=lambda item: not item.nodeid.startswith(LONG))


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of the tier that the command line names."""
    for item in items:
        mark(item)
    config.stash[COLLECTED] = list(items)
    kept = selected(items, config.getoption("--tier"))
    dropped = set(items) - set(kept)
    if dropped:
        config.hook.pytest_deselected(items=[item for item in items if item in dropped])
    items[:] = kept


def unused(items: Sequence[pytest.Item]) -> list[str]:
    """The entries of this module that concern none of the tests."""
    ids = [item.nodeid for item in items]
    places = (*CHECK, *UNCOVERED, *COVERED, *LONG)
    lost = [place for place in places if not any(name.startswith(place) for name in ids)]
    names = {name for item in items for name in servers_of(item)}
    return lost + [server for server in SERVERS if server not in names]
