"""A part of the hazard table: naive recipes fail, leaselock's defaults survive."""

from __future__ import annotations

import re
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from verification.hazards.catalogue import HAZARDS
from verification.hazards.chart import draw
from verification.hazards.methods import METHODS
from verification.hazards.outcome import Outcome, Verdict
from verification.hazards.private_servers import stores
from verification.hazards.runner import run_cells, select_hazards, select_methods
from verification.hazards.stores import HazardStore, kind_of
from verification.hazards.table import Cell, Table

if TYPE_CHECKING:
    from collections.abc import Iterator

# All cells run once, for all these tests.
pytestmark = [pytest.mark.long, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).parent / "hazard-table.md"
AGAIN = 3
# Known defects of the recipes.
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
    return [Cell(METHODS[method], HAZARDS[key]) for method, keys in listed.items() for key in keys]


class Outcomes:
    """The outcomes. On a busy machine a trial may fail: then it is repeated alone."""

    def __init__(self, stack: ExitStack) -> None:
        self.stores = stores(stack, ["sqlite", "redis"])
        self.table = run_cells(cells(FAILING) + cells(SOUND), self.stores, parallel=8)

    def of(self, cell: Cell, *again: Verdict) -> Outcome:
        """Return the outcome of a cell; repeat the trial while its verdict is one of *again*."""
        outcome = self.table.of(*cell)
        for _ in range(AGAIN):
            if outcome.verdict not in again:
                break
            outcome = run_cells([cell], self.stores).of(*cell)
        return outcome


@pytest.fixture(scope="module")
def outcomes() -> Iterator[Outcomes]:
    with ExitStack() as stack:
        yield Outcomes(stack)


@pytest.mark.parametrize(
    "cell", cells(FAILING), ids=lambda cell: f"{cell.method.name}-{cell.hazard.key}"
)
def test_naive_recipe_fails(outcomes: Outcomes, cell: Cell) -> None:
    outcome = outcomes.of(cell, Verdict.ERROR, Verdict.SURVIVED, Verdict.NOTHING)
    assert outcome.verdict is Verdict.FAILED, outcome


@pytest.mark.parametrize(
    "cell", cells(SOUND), ids=lambda cell: f"{cell.method.name}-{cell.hazard.key}"
)
def test_default_survives(outcomes: Outcomes, cell: Cell) -> None:
    outcome = outcomes.of(cell, Verdict.ERROR)
    assert outcome.verdict is Verdict.SURVIVED, outcome


def test_failed_defaults_and_errors_are_failures() -> None:
    default, naive = METHODS["leaselock sqlite"], METHODS["SQLite: INSERT; DELETE"]
    crash = HAZARDS["crash"]
    bad, broken = Outcome(Verdict.FAILED, "seen"), Outcome(Verdict.ERROR, "it broke")
    table = Table([crash], [default, naive], {("leaselock sqlite", "crash"): bad})
    table.outcomes["SQLite: INSERT; DELETE", "crash"] = bad
    assert table.failures() == ["leaselock sqlite, crash: failed: seen"]
    table.outcomes["SQLite: INSERT; DELETE", "crash"] = broken
    assert len(table.failures()) == 2


def test_everything_created_is_removed() -> None:
    with Redis() as server:
        server.ask("SET", "another's", "key")
        cell = Cell(METHODS["leaselock redis hash"], HAZARDS["stranger"])
        assert run_cells([cell], [HazardStore(server.url)]).of(*cell).verdict is Verdict.SURVIVED
        assert server.stored_keys() == ["another's"]


def test_unknown_hazards_methods_and_stores_are_rejected() -> None:
    with pytest.raises(ValueError, match="no such hazard: nonsense; known are crash"):
        select_hazards(["crash", "nonsense"])
    with pytest.raises(ValueError, match="no such method: nonsense"):
        select_methods(["nonsense"])
    with pytest.raises(ValueError, match="no hazards for 'memory'"):
        kind_of("memory://")


def test_minimum_numbers_of_hazards_and_methods() -> None:
    assert len(HAZARDS) >= 13
    assert len(METHODS) >= 12
    assert sum(method.default for method in METHODS.values()) == 8


def test_page_is_complete_and_no_default_failed() -> None:
    text = PAGE.read_text("utf-8")
    matrix = {row[0].strip("*"): row[1:] for row in rows_of(text.partition("\n## ")[0])}
    assert set(METHODS) <= set(matrix)
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == list(HAZARDS)
    for name, marks in matrix.items():
        if name in METHODS:
            assert len(marks) == len(HAZARDS), name
            assert not (METHODS[name].default and "✘" in marks), name
            assert METHODS[name].ours or "✘" in marks, f"{name} did not fail"


def rows_of(text: str) -> list[list[str]]:
    """Return the rows of the tables in a page."""
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_picture_requires_matplotlib(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        draw(Table([], [], {}), tmp_path / "a.svg")


def test_command_prints_the_table() -> None:
    command = [sys.executable, "-m", "verification.hazards", "--only", "stranger", "--way", "file"]
    run = partial(subprocess.run, capture_output=True, text=True, check=False, cwd=ROOT)
    done = run([*command, "sqlite"])
    assert done.returncode == 0, done.stderr
    rows = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines()]
    marks = {row[0].strip(): row[1] for row in rows if row and row[0].startswith("file: ")}
    assert marks == {"file: O_EXCL; unlink": "✘", "file: flock; close": "✔"}
    done = run([*command, "memory"])
    assert done.returncode == 2, done.stderr
    assert "no such store: memory" in done.stderr
