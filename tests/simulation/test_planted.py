"""Every planted bug is found, and is on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.bugs import BUGS, Bug, table
from tests.simulation.stories import play

# Traced, it takes several times as long, and covers nothing that the other stories do not.
pytestmark = pytest.mark.no_cover
PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "planted.md"
# A bug is planted near a seed that finds it; seeds move when the code under test changes.
SEEDS = 4000


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    bug.plant(monkeypatch)
    seeds = range(bug.first, bug.first + SEEDS)
    found = any(play(bug.kind, seed).violation for seed in seeds)
    assert found, f"{bug.name} was not found by {SEEDS} seeds"


def test_there_are_enough_planted_bugs() -> None:
    kinds = {bug.kind for bug in BUGS}
    assert len(BUGS) >= 30
    assert kinds >= {"sqlite", "redis", "redlock", "zookeeper", "sql"}


def test_the_page_lists_them() -> None:
    assert table() in PAGE.read_text("utf-8"), "python -m tests.simulation.bugs prints the table"
