"""Which layouts of a store a program may use."""

from __future__ import annotations

import hashlib
import itertools
import re

import pytest

from leaselock._backends.sql.server_info import SCHEMA as SQL_SCHEMA
from leaselock._backends.sql.statements import dialect_of
from leaselock._backends.sqlite.database import COLUMNS
from leaselock._backends.sqlite.database import SCHEMA as SQLITE_SCHEMA
from leaselock._backends.sqlite.lock_row import statement_text
from leaselock._core.contract.layout import Layout, check_layout, layout_problem, parsed
from leaselock.errors import NotApplied

# The tables of each version of a layout.
DIGESTS = {
    "postgres 1": "cac06faa2f9112b5",
    "mysql 1": "76d5a4e364e53ebf",
    "sqlite 2": "2b0360871d42f3ba",
}


@pytest.mark.parametrize(
    ("marker", "own", "admitted"),
    [
        ("1", Layout(1, 1), True),
        ("2", Layout(1, 1), False),
        ("2 1", Layout(1, 1), True),
        ("3 2", Layout(1, 1), False),
        ("1", Layout(2, 1), True),
        ("1", Layout(2, 2), False),
        ("1", Layout(3, 2), False),
        ("3 2", Layout(2, 2), True),
        # Programs of layout 1 may be running.
        ("2 1", Layout(3, 2), False),
        ("2 1", Layout(2, 1), True),
        ("2 1", Layout(3, 1), True),
    ],
)
def test_the_newer_layout_decides(marker: str, own: Layout, *, admitted: bool) -> None:
    assert (layout_problem(marker, own, "") is None) == admitted


@pytest.mark.parametrize("marker", ["", "x", "1 2 3", "-1", "1.0", "²", " 1"])
def test_what_is_no_marker_is_refused(marker: str) -> None:
    assert parsed(marker) is None
    with pytest.raises(NotApplied, match="which no leaselock writes: do this"):
        check_layout("the store", marker, Layout(1, 1), "do this")


def test_the_error_names_both_versions_and_what_to_do() -> None:
    with pytest.raises(NotApplied) as newer:
        check_layout("redis://db", "4 3", Layout(2, 1), "do this")
    assert newer.value.reason == "misconfigured"
    text = str(newer.value)
    assert "redis://db cannot be used: it has the layout 4 of a newer leaselock" in text
    assert "(programs of layout 3 or later may use it)" in text
    assert "needs layout 1 to 2: use that release of leaselock here, too" in text
    with pytest.raises(NotApplied, match=r"layout 1 of an older leaselock, .*layout 2: do this"):
        check_layout("redis://db", "1", Layout(2, 2), "do this")
    with pytest.raises(NotApplied, match=r"an older leaselock \(programs of layout 1 or later"):
        check_layout("redis://db", "2 1", Layout(3, 2), "do this")


def test_no_two_programs_that_a_marker_admits_are_incompatible() -> None:
    layouts = [Layout(v, low) for v in range(1, 6) for low in range(1, v + 1)]
    # The lowest layout that a release admits never falls from one release to the next.
    for a, b in itertools.combinations(layouts, 2):
        newer, older = max(a, b), min(a, b)
        if older.version == newer.version or newer.lowest < older.lowest:
            continue
        for marker in layouts:
            if any(_contradicts(marker, each) for each in (a, b)):
                continue
            if a.admits(marker) and b.admits(marker):
                assert newer.lowest <= older.version, (a, b, marker)


def _contradicts(marker: Layout, own: Layout) -> bool:
    """Whether no series of releases has both."""
    newer, older = max(marker, own), min(marker, own)
    return newer.lowest < older.lowest or (newer.version == older.version and newer != older)


@pytest.mark.parametrize("layout", [Layout(1, 1), Layout(3, 2)])
def test_a_marker_is_read_as_it_was_written(layout: Layout) -> None:
    assert parsed(str(layout)) == layout


@pytest.mark.parametrize("kind", ["postgres", "mysql", "sqlite"])
def test_a_change_of_the_tables_raises_the_version(kind: str) -> None:
    """After a change of the tables: raise the version of the layout, and add its digest here."""
    if kind == "sqlite":
        text, layout = statement_text("schema.sql"), SQLITE_SCHEMA
    else:
        text, layout = "; ".join(dialect_of(kind).schema), SQL_SCHEMA
    statements = " ".join(re.sub("--.*", "", text).split())
    found = hashlib.sha256(statements.encode()).hexdigest()[:16]
    assert DIGESTS[f"{kind} {layout.version}"] == found


def test_the_columns_that_a_file_must_have_are_those_that_are_created() -> None:
    made = {}
    for statement in statement_text("schema.sql").split(";"):
        if table := re.search(r"CREATE TABLE IF NOT EXISTS (\w+)", statement):
            made[table[1]] = " ".join(re.findall(r"^    ([a-z_]+) ", statement, re.MULTILINE))
    assert made == COLUMNS
