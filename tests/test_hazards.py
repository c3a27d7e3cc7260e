"""The page of hazards is complete, and its references exist.

Every hazard has a row, in order. Every reference in the last column names an existing test,
scenario, planted bug or source file; a row without references says so.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from testkit.conformance import SCENARIOS
from verification.simulation.bugs import known

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "verification" / "hazards" / "README.md"
# The number of hazards for each letter, so that a missing row is detected.
COUNTS = {"A": 15, "B": 14, "C": 13, "D": 14, "E": 16, "F": 15}
COUNTS |= {"G": 18, "H": 8, "I": 12, "J": 20, "K": 7, "L": 10, "M": 13}
IDS = [f"{letter}{n}" for letter, count in COUNTS.items() for n in range(1, count + 1)]


PLAIN = ("not defended", "not offered")
ROW = re.compile(r"^\| ([A-Z][0-9]+) \|(.*)\|$", re.MULTILINE)


class Row(NamedTuple):
    """One hazard: what can happen, what leaselock does, what covers it."""

    name: str
    happens: str
    answer: str
    shown: str


def rows_of(text: str) -> list[Row]:
    return [
        Row(name, *(cell.strip() for cell in rest.split(" | "))) for name, rest in ROW.findall(text)
    ]


ROWS = rows_of(PAGE.read_text("utf-8"))
KNOWN = {scenario.name for scenario in SCENARIOS}
PLANTED = known().keys()


@cache
def functions_in(path: Path) -> frozenset[str]:
    """Return the names of the functions of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return frozenset(node.name for node in tree.body if isinstance(node, ast.FunctionDef))


def problem_of(reference: str) -> str | None:
    """Return why a reference is invalid; None if it is valid."""
    file, colons, function = reference.partition("::")
    if reference.startswith("scenario "):
        found = reference.removeprefix("scenario ") in KNOWN
    elif reference.startswith("planted bug "):
        found = reference.removeprefix("planted bug ") in PLANTED
    elif colons:
        path = ROOT / file
        found = path.is_file() and function.startswith("test_") and function in functions_in(path)
    elif reference.startswith("src/leaselock/"):
        found = (ROOT / file).is_file()
    else:
        return f"{reference!r} is not a reference"
    return None if found else f"{reference!r} does not exist"


def problems_of(row: Row) -> list[str]:
    """Return the problems of the last column of a row."""
    references = re.findall(r"`([^`]*)`", row.shown)
    problems = [problem for reference in references if (problem := problem_of(reference))]
    if not references and not row.shown.startswith(PLAIN):
        problems.append("no reference, and no statement that there is none")
    if any(r.startswith("src/") for r in references) and "by construction: `src/" not in row.shown:
        problems.append("a source file is no test: the row must say by construction")
    return problems


def test_every_hazard_has_a_row_in_order() -> None:
    assert [row.name for row in ROWS] == IDS


def test_every_row_is_complete() -> None:
    assert [row.name for row in ROWS if not (row.happens and row.answer and row.shown)] == []


@pytest.mark.parametrize("letter", COUNTS)
def test_references_exist(letter: str) -> None:
    wrong = {row.name: problems_of(row) for row in ROWS if row.name.startswith(letter)}
    assert {name: problems for name, problems in wrong.items() if problems} == {}
