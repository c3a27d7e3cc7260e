"""The outcomes of a run as text, Markdown and JSON.

The matrix shows every cell, the tables below it what happened in each.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from leaselock.testing.hazards.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.hazards.play import Table

SCHEMA = 1
MARKS = {
    Verdict.SURVIVED: "✔",
    Verdict.FENCED: "F",
    Verdict.FAILED: "✘",
    Verdict.NOTHING: "-",
    Verdict.UNPLAYED: "?",
    Verdict.ERROR: "!",
}
LEGEND = {
    Verdict.SURVIVED: "survived",
    Verdict.FENCED: (
        "fenced: two clients considered themselves the holder, "
        "the token rejected the older one's write"
    ),
    Verdict.FAILED: "failed",
    Verdict.NOTHING: "does not apply",
    Verdict.UNPLAYED: "not played here",
    Verdict.ERROR: "the play itself failed",
}
PAGE = "hazards.md"


def text(table: Table) -> str:
    """Return the table for a terminal."""
    width = max(len(way.name) for way in table.ways) + 2
    numbers = "".join(f"{number:>4}" for number in range(1, len(table.hazards) + 1))
    lines = [f"{'':{width}}{numbers}"]
    for way in table.ways:
        marks = "".join(f"{MARKS[table.of(way, h).verdict]:>4}" for h in table.hazards)
        lines.append(f"{way.name + (' *' if way.default else ''):{width}}{marks}")
    lines += ["", "* a default of leaselock", *_legend(table), ""]
    for number, hazard in enumerate(table.hazards, 1):
        lines.append(f"{number:>3}  {hazard.key}: {hazard.title}")
    return "\n".join(lines) + "\n"


def _legend(table: Table) -> list[str]:
    found = {outcome.verdict for outcome in table.outcomes.values()}
    return [f"{MARKS[verdict]} {words}" for verdict, words in LEGEND.items() if verdict in found]


def markdown(table: Table) -> str:
    """Return the table for a page."""
    heads = [f"[{number}](#{hazard.key})" for number, hazard in enumerate(table.hazards, 1)]
    lines = [_row(["locking method", *heads]), "|---|" + ":-:|" * len(table.hazards)]
    for way in table.ways:
        name = f"**{way.name}**" if way.default else way.name
        lines.append(_row([name, *(MARKS[table.of(way, h).verdict] for h in table.hazards)]))
    lines += ["", f"Bold: the defaults of leaselock. {'; '.join(_legend(table))}."]
    for hazard in table.hazards:
        lines += ["", f"## {hazard.key}", "", *_seen(table, hazard.key)]
    return "\n".join(lines) + "\n"


def _seen(table: Table, key: str) -> Iterator[str]:
    (hazard,) = (hazard for hazard in table.hazards if hazard.key == key)
    where = f" ([{hazard.rows}]({PAGE}))" if hazard.rows else ""
    yield f"**{hazard.title}**{where}. {hazard.about}"
    yield from ("", "| locking method | | what happened |", "|---|:-:|---|")
    for way in table.ways:
        outcome = table.of(way, hazard)
        yield _row([way.name, MARKS[outcome.verdict], outcome.seen])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def as_json(table: Table) -> str:
    """Return the outcomes as JSON."""
    rows = [
        {
            "way": way.name,
            "leaselock": way.ours,
            "default": way.default,
            "hazard": hazard.key,
            **table.of(way, hazard)._asdict(),
        }
        for way in table.ways
        for hazard in table.hazards
    ]
    return json.dumps({"schema": SCHEMA, "cells": rows}, indent=1)


def summary(table: Table) -> str:
    """Return a summary in one line."""
    found = [outcome.verdict for outcome in table.outcomes.values()]
    counts = ", ".join(f"{found.count(v)} {v}" for v in Verdict if v in found)
    return f"{len(table.hazards)} hazards on {len(table.ways)} locking methods: {counts}"
