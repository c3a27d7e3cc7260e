"""A share of the hazard table, played in the suite: naive ways fail, and defaults do not."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.hazards.servers import places
from tests.servers.redis import Redis

from leaselock.testing.hazards.catalogue import HAZARDS
from leaselock.testing.hazards.command import hazards_of, ways_of
from leaselock.testing.hazards.outcome import Outcome, Verdict
from leaselock.testing.hazards.picture import draw
from leaselock.testing.hazards.places import Place, kind_of
from leaselock.testing.hazards.play import Cell, Table, play_cells
from leaselock.testing.hazards.ways import WAYS

if TYPE_CHECKING:
    from collections.abc import Iterator

# One process plays them, once for all these tests.
pytestmark = pytest.mark.timeout(300)

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "hazard-table.md"
AGAIN = 3
# What the literature says of them.
FAILING = {
    "Redis: SETNX; DEL": ["crash", "fork", "stranger", "nesting"],
    "Redis: SETNX, EXPIRE; DEL": ["crash-midway", "late-release", "renewed"],
    "Redis: SET NX PX; DEL": ["outlived", "lost-reply"],
    "Redis: SET NX PX; GET, DEL": ["two-step-release", "frozen"],
    "Redis: SETNX, GET, GETSET; GET, DEL": ["wrong-clock", "overwritten-end"],
    "Redis: INCR; DEL": ["fork", "polling"],
    "SQLite: INSERT; DELETE": ["crash"],
    "SQLite: SELECT, UPDATE": ["two-at-once"],
    "SQLite: end by client's clock": ["wrong-clock"],
    "file: O_EXCL; unlink": ["stranger"],
}
SOUND = {
    "leaselock sqlite": ["crash", "fork", "outlived", "stranger"],
    "leaselock redis hash": ["crash", "late-release", "two-step-release", "lost-reply", "polling"],
}


def cells(listed: dict[str, list[str]]) -> list[Cell]:
    return [Cell(WAYS[way], HAZARDS[key]) for way, keys in listed.items() for key in keys]


class Played:
    """What came of them. On a busy machine a play may go wrong: then it is played again, alone."""

    def __init__(self, stack: ExitStack) -> None:
        self.places = places(stack, ["sqlite", "redis"])
        self.table = play_cells(cells(FAILING) + cells(SOUND), self.places, at_once=8)

    def of(self, cell: Cell, *again: Verdict) -> Outcome:
        """The outcome of a cell, played again while it is one of *again*."""
        outcome = self.table.of(*cell)
        for _ in range(AGAIN):
            if outcome.verdict not in again:
                break
            outcome = play_cells([cell], self.places).of(*cell)
        return outcome


@pytest.fixture(scope="module")
def played() -> Iterator[Played]:
    with ExitStack() as stack:
        yield Played(stack)


@pytest.mark.parametrize(
    "cell", cells(FAILING), ids=lambda cell: f"{cell.way.name}-{cell.hazard.key}"
)
def test_a_naive_way_is_seen_to_fail(played: Played, cell: Cell) -> None:
    outcome = played.of(cell, Verdict.ERROR, Verdict.SURVIVED, Verdict.NOTHING)
    assert outcome.verdict is Verdict.FAILED, outcome


@pytest.mark.parametrize(
    "cell", cells(SOUND), ids=lambda cell: f"{cell.way.name}-{cell.hazard.key}"
)
def test_a_default_is_seen_to_survive(played: Played, cell: Cell) -> None:
    outcome = played.of(cell, Verdict.ERROR)
    assert outcome.verdict is Verdict.SURVIVED, outcome


def test_a_default_that_fails_and_a_play_that_breaks_are_complaints() -> None:
    default, naive = WAYS["leaselock sqlite"], WAYS["SQLite: INSERT; DELETE"]
    crash = HAZARDS["crash"]
    bad, broken = Outcome(Verdict.FAILED, "seen"), Outcome(Verdict.ERROR, "it broke")
    table = Table([crash], [default, naive], {("leaselock sqlite", "crash"): bad})
    table.outcomes["SQLite: INSERT; DELETE", "crash"] = bad
    assert table.complaints() == ["leaselock sqlite, crash: failed: seen"]
    table.outcomes["SQLite: INSERT; DELETE", "crash"] = broken
    assert len(table.complaints()) == 2


def test_what_was_made_is_removed() -> None:
    with Redis() as server:
        server.ask("SET", "another's", "key")
        cell = Cell(WAYS["leaselock redis hash"], HAZARDS["stranger"])
        assert play_cells([cell], [Place(server.url)]).of(*cell).verdict is Verdict.SURVIVED
        assert server.ask("KEYS", "*") == ["another's"]


def test_unknown_words_are_refused() -> None:
    with pytest.raises(ValueError, match="no such hazard: nonsense; known are crash"):
        hazards_of(["crash", "nonsense"])
    with pytest.raises(ValueError, match="no such way: nonsense"):
        ways_of(["nonsense"])
    with pytest.raises(ValueError, match="not played on 'memory'"):
        kind_of("memory://")


def test_there_are_as_many_as_was_asked_for() -> None:
    assert len(HAZARDS) >= 13
    assert len(WAYS) >= 12
    assert sum(way.default for way in WAYS.values()) == 6


def test_the_page_is_whole_and_no_default_failed() -> None:
    text = PAGE.read_text("utf-8")
    matrix = {row[0].strip("*"): row[1:] for row in rows_of(text.partition("\n## ")[0])}
    assert set(WAYS) <= set(matrix)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(HAZARDS)
    for name, marks in matrix.items():
        if name in WAYS:
            assert len(marks) == len(HAZARDS), name
            assert not (WAYS[name].default and "✘" in marks), name
            assert WAYS[name].ours or "✘" in marks, f"{name} was not seen to fail"


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a page."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_a_picture_wants_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw(Table([], [], {}), tmp_path / "a.svg")


def test_the_command_plays_and_prints() -> None:
    command = [sys.executable, "-m", "leaselock", "hazards", "--only", "stranger", "--way", "file"]
    done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    verdicts = {cell["way"]: cell["verdict"] for cell in json.loads(done.stdout)["cells"]}
    assert verdicts == {"file: O_EXCL; unlink": "failed", "file: flock; close": "survived"}
    done = subprocess.run([*command, "memory://"], capture_output=True, text=True, check=False)
    assert done.returncode == 64, done.stderr
    assert "not played on 'memory'" in done.stderr
