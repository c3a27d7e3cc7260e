"""Which tests `make test`, `make verify` and `make check` run.

A test is in the second tier (`verify`) when it has one of the markers of MARKERS, else in the first
(`test`), which is deterministic. Most markers stand beside the test; what concerns whole folders,
files and servers is listed here. `check` is the part of the first tier that needs no server and
hardly any time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIERS = ("all", "test", "verify", "check")
MARKERS = ("timing", "statistical", "heavy", "variant")
# Folders and files that are in the second tier as a whole.
PLACES = {
    "tests/storms/": "statistical",
    "tests/hazards/": "heavy",
    "tests/interop/": "heavy",
    "tests/controls/": "heavy",
    "tests/crash/": "statistical",
    "tests/fuzz/": "statistical",
    "tests/test_benchmarks.py": "heavy",
    "tests/test_hazards.py": "heavy",
    "tests/test_demo.py": "heavy",
    "tests/test_secrets.py": "heavy",
    "tests/servers/test_databases.py": "heavy",
    "tests/chaos/test_redis_cluster.py": "heavy",
    "tests/chaos/test_redis_slots.py": "heavy",
    "tests/chaos/test_redis_clients.py": "variant",
    "tests/chaos/test_redis_ways.py": "variant",
    "tests/chaos/test_redis_crowds.py": "timing",
    "tests/chaos/test_redis_clocks.py": "timing",
    "tests/chaos/test_redis_states.py": "heavy",
    "tests/chaos/test_redis_restart.py": "heavy",
    "tests/chaos/test_redis_replicas.py": "heavy",
    "tests/chaos/test_redlock_faults.py": "variant",
}
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
CHECK = (
    "tests/core/",
    "tests/testing/",
    "tests/drivers/",
    "tests/test_architecture.py",
    "tests/test_documents.py",
    "tests/simulation/test_simulation.py",
)
COLLECTED = pytest.StashKey[list[pytest.Item]]()


def mark(item: pytest.Item) -> None:
    """Add the markers of this module."""
    for place, marker in PLACES.items():
        if item.nodeid.startswith(place):
            item.add_marker(marker)
    for name in servers_of(item) & SERVERS.keys():
        item.add_marker(SERVERS[name])


def servers_of(item: pytest.Item) -> set[str]:
    """The names of the fixtures and parameters of a test."""
    names = set(getattr(item, "fixturenames", ()))
    if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
        names |= {value for value in item.callspec.params.values() if isinstance(value, str)}
    return names


def tier_of(item: pytest.Item) -> str:
    """The tier of a test that has its markers."""
    return "verify" if any(item.get_closest_marker(name) for name in MARKERS) else "test"


def selected(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """Those of a tier, the ones that take longest first."""
    if tier in ("test", "verify"):
        items = [item for item in items if tier_of(item) == tier]
    elif tier == "check":
        items = [item for item in items if tier_of(item) == "test"]
        items = [item for item in items if item.nodeid.startswith(CHECK)]
    return sorted(items, key=lambda item: item.get_closest_marker("first") is None)


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
    places = (*PLACES, *CHECK)
    lost = [place for place in places if not any(name.startswith(place) for name in ids)]
    names = {name for item in items for name in servers_of(item)}
    return lost + [server for server in SERVERS if server not in names]
