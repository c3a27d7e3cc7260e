"""The outcomes of a run as text, as Markdown and as a table of all observations.

The matrix shows every cell. The lists below it say what was observed where a lock did not do what
it should, and `observations` what was observed in each cell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.hazards.outcome import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from verification.hazards.catalogue import Hazard
    from verification.hazards.methods import Method
    from verification.hazards.table import Table

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
    Verdict.FENCED: "two holds overlapped, the older holder's write was refused by its token",
    Verdict.FAILED: "failed",
    Verdict.NOTHING: "does not apply",
    Verdict.UNPLAYED: "not played here",
    Verdict.ERROR: "the trial itself failed",
}
EXPECTED = (Verdict.SURVIVED, Verdict.NOTHING)
PAGE = "README.md"


def text(table: Table) -> str:
    """Return the table as plain text."""
    width = max(len(method.name) for method in table.methods) + 2
    numbers = "".join(f"{number:>4}" for number in range(1, len(table.hazards) + 1))
    lines = [f"{'':{width}}{numbers}"]
    for method in table.methods:
        marks = "".join(f"{MARKS[table.of(method, h).verdict]:>4}" for h in table.hazards)
        lines.append(f"{method.name + (' *' if method.default else ''):{width}}{marks}")
    lines += ["", "* a default of leaselock", *_legend(table), ""]
    for number, hazard in enumerate(table.hazards, 1):
        lines.append(f"{number:>3}  {hazard.key}: {hazard.title}")
    return "\n".join(lines) + "\n"


def _legend(table: Table) -> list[str]:
    found = {outcome.verdict for outcome in table.outcomes.values()}
    return [f"{MARKS[verdict]} {text}" for verdict, text in LEGEND.items() if verdict in found]


def markdown(table: Table, observations: str) -> str:
    """Return the table as a Markdown page, which links to the file of all *observations*."""
    heads = [f"[{number}](#{hazard.key})" for number, hazard in enumerate(table.hazards, 1)]
    lines = [_row(["locking method", *heads]), "|---|" + ":-:|" * len(table.hazards)]
    for method in table.methods:
        name = f"**{method.name}**" if method.default else method.name
        lines.append(_row([name, *(MARKS[table.of(method, h).verdict] for h in table.hazards)]))
    lines += ["", f"Bold: the defaults of leaselock. {'; '.join(_legend(table))}."]
    lines += ["", f"What was observed in each cell is in [a table]({observations})."]
    for hazard in table.hazards:
        lines += ["", f"## {hazard.key}", "", *_seen(table, hazard)]
    return "\n".join(lines) + "\n"


def every_observation(table: Table) -> str:
    """Return what was observed in each cell: lines of fields, separated by tabs."""
    cells = [
        (hazard, method, table.of(method, hazard))
        for hazard in table.hazards
        for method in table.methods
    ]
    lines = [
        f"{hazard.key}\t{method.name}\t{found.verdict}\t{found.seen}"
        for hazard, method, found in cells
    ]
    return "\n".join(["hazard\tlocking method\tverdict\twhat happened", *lines]) + "\n"


def _seen(table: Table, hazard: Hazard) -> Iterator[str]:
    where = f" ([{hazard.rows}]({PAGE}))" if hazard.rows else ""
    yield f"**{hazard.title}**{where}. {hazard.about}"
    methods: dict[tuple[str, str], list[Method]] = {}
    for method in table.methods:
        outcome = table.of(method, hazard)
        if outcome.verdict not in EXPECTED:
            key = MARKS[outcome.verdict], outcome.seen
            methods.setdefault(key, []).append(method)
    if methods:
        yield from ("", "| | what happened | with |", "|:-:|---|---|")
    for (mark, seen), found in methods.items():
        yield _row([mark, seen, _names(found)])


def _names(methods: list[Method]) -> str:
    """Name those of leaselock, and count the naive recipes: the matrix says which these are."""
    ours = [f"`{method.name}`" for method in methods if method.ours]
    naive = len(methods) - len(ours)
    return ", ".join([*ours, *([f"{naive} naive"] if naive else [])])


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def summary(table: Table) -> str:
    """Return the number of each verdict, in one line."""
    found = [outcome.verdict for outcome in table.outcomes.values()]
    counts = ", ".join(f"{found.count(v)} {v}" for v in Verdict if v in found)
    return f"{len(table.hazards)} hazards on {len(table.methods)} locking methods: {counts}"
