"""Every planted bug is found, and is listed on the page."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.simulation.bugs import BUGS, NEAR, Bug, search, table, written

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "planted.md"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_found(bug: Bug) -> None:
    seeds = f"{bug.first} to {bug.first + NEAR - 1}"
    assert search(bug) is not None, (
        f"no seed from {seeds} finds {bug.name}. After a change of the code under test others do, "
        f"and this writes one into the file: make seeds NAMES={bug.name}"
    )


def test_a_seed_is_written_with_and_without_an_older_one() -> None:
    bug, rest = BUGS[0], "def plant(patch):\n"
    one = written(rest, bug, 7)
    assert one == f"FIRST = 7\n\n\n{rest}"
    assert written(one, bug._replace(first=7), 8) == f"FIRST = 8\n\n\n{rest}"


def test_there_are_enough_planted_bugs() -> None:
    kinds = {bug.kind for bug in BUGS}
    assert len(BUGS) >= 30
    assert kinds >= {"sqlite", "redis", "redlock", "zookeeper", "sql"}


def test_the_page_lists_them() -> None:
    assert table() in PAGE.read_text("utf-8"), "python -m tests.simulation.bugs prints the table"
