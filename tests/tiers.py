"""Which tests `make test`, `make verify`, `make release-checks` and `make check` run.

tests/ is the first tier (`test`), which is deterministic; verification/ is the second (`verify`). A
mark says otherwise: one of SECOND puts a test into the second tier and says why, `first_tier` puts
a module of verification/ into the first, and `nightly` puts a test into the third
(`release-checks`). `check` is the part of the first tier that starts no server (`reach.py`).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from testkit.servers import costs
from tests.reach import needs_server

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

TIERS = ("all", "test", "verify", "release-checks", "check")
SECOND = ("timing", "statistical", "heavy", "variant")
THIRD = "nightly"
# What is in verification/, and `make test` runs all the same.
FIRST = "first_tier"
FOLDER_OF_SECOND = "verification/"
# Coverage would make these slower, the simulation several times, and shows nothing that the others
# do not, except for modules with the mark `covers`.
UNCOVERED = (
    FOLDER_OF_SECOND,
    *(f"tests/{folder}/" for folder in ("backends", "cli", "sql", "testing")),
)
LEFT_OUT = pytest.StashKey[Counter[str]]()
TIER = pytest.StashKey[str]()
# The tier of this run. Modules with many parameters make only those that it needs.
running = "all"


def prepare(config: pytest.Config) -> None:
    """Note the tier of this run, before a test is imported."""
    global running
    running = config.getoption("--tier")
    costs.allowed = running != "check"


def ignored(path: Path) -> bool:
    """Return whether no test of a module is in the tier of this run, so it need not be imported."""
    if running not in ("test", "check") or path.suffix != ".py":
        return False
    in_second = f"/{FOLDER_OF_SECOND}" in path.as_posix()
    return in_second and path.name.startswith("test_") and FIRST not in path.read_text("utf-8")


def mark(item: pytest.Item) -> None:
    """Add the marks that a rule decides: of costly servers, and of tests without coverage."""
    if names := servers_of(item) & costs.COSTLY.keys():
        item.add_marker(costs.COSTLY[min(names)])
    if item.nodeid.startswith(UNCOVERED) and not item.get_closest_marker("covers"):
        item.add_marker("no_cover")


def servers_of(item: pytest.Item) -> set[str]:
    """Return the names of the fixtures and parameters of a test."""
    names = set(getattr(item, "fixturenames", ()))
    return names | {value for value in params_of(item) if isinstance(value, str)}


def params_of(item: pytest.Item) -> list[object]:
    """Return the values of its parameters."""
    called = getattr(item, "callspec", None)
    return list(called.params.values()) if called else []


def tier_of(item: pytest.Item) -> str:
    """Return the tier of a test that has its marks."""
    if item.get_closest_marker(THIRD):
        return "release-checks"
    if any(item.get_closest_marker(name) for name in SECOND):
        return "verify"
    in_second = item.nodeid.startswith(FOLDER_OF_SECOND)
    return "verify" if in_second and not item.get_closest_marker(FIRST) else "test"


def selected(items: Iterable[pytest.Item], tier: str) -> list[pytest.Item]:
    """Return those of a tier, the ones with the mark `long` first.

    A process that has no tests left takes some of another's last ones, so a long one that comes
    last would leave a process alone with it.
    """
    if tier == "check":
        seen: dict[int, bool] = {}
        items = [item for item in items if tier_of(item) == "test"]
        items = [item for item in items if not needs_server(item, seen)]
    elif tier != "all":
        items = [item for item in items if tier_of(item) == tier]
    return sorted(items, key=lambda item: item.get_closest_marker("long") is None)


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep those of the tier that the command line names."""
    for item in items:
        mark(item)
    kept = selected(items, running)
    dropped = set(items) - set(kept)
    left_out = [item for item in items if item in dropped]
    config.stash[LEFT_OUT] = Counter(
        item.nodeid.partition("::")[0].rpartition("/")[0]
        for item in left_out
        if tier_of(item) == "test"
    )
    if dropped:
        config.hook.pytest_deselected(items=left_out)
    items[:] = kept
