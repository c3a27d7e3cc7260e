"""Every planted bug is found, and is listed on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.bugs import BUGS, SEEDS, Bug, search, table

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "planted.md"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    assert search(bug) is not None, f"{bug.name} was not found by {SEEDS} seeds"


def test_there_are_enough_planted_bugs() -> None:
    kinds = {bug.kind for bug in BUGS}
    assert len(BUGS) >= 30
    assert kinds >= {"sqlite", "redis", "redlock", "zookeeper", "sql"}


def test_the_page_lists_them() -> None:
    assert table() in PAGE.read_text("utf-8"), "python -m tests.simulation.bugs prints the table"
