"""The result of a chaos run as a table and as figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testkit.chaos.run import Report

STALE = {Kind.STALE_WRITE, Kind.LOST_UPDATE}
COLUMNS = ("store", "grants", "faults", "died holding", "lost", "no answer", "longest wait")
VERDICTS = ("overlaps", "stale writes let in", "verdict")


def markdown(reports: Sequence[Report]) -> str:
    """Return the reports as a Markdown table."""
    lines = [_line((*COLUMNS, *VERDICTS)), "|---" * len((*COLUMNS, *VERDICTS)) + "|"]
    lines += [_line(_row(report)) for report in reports]
    grants = sum(report.verdict.counts.grants for report in reports)
    faults = sum(len(report.faults) for report in reports)
    lines += ["", f"{grants:,} grants, {faults:,} faults, seed {reports[0].seed}."]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _row(report: Report) -> list[str]:
    counts = report.verdict.counts
    numbers = (counts.grants, len(report.faults), counts.died_holding, lost(report))
    cells = [report.target, *(f"{number:,}" for number in (*numbers, counts.unknowns))]
    cells.append(f"{counts.wait_max / 1e9:.2f} s")
    overlaps = str(sum(v.kind is Kind.OVERLAP for v in report.verdict.violations))
    cells.append(f"{overlaps}, not promised" if report.excused else overlaps)
    stale = sum(violation.kind in STALE for violation in report.verdict.violations)
    return [*cells, str(stale), "kept" if report.ok else "BROKEN"]


def lost(report: Report) -> int:
    """Return how many releases found the lease already lost."""
    holds = [hold for lock in report.history.locks.values() for hold in lock.holds]
    return sum(hold.release_lost is not None for hold in holds)


def figures(report: Report) -> dict[str, object]:
    """Return the figures of a run."""
    counts = report.verdict.counts
    return {
        "store": report.target,
        "seed": report.seed,
        "seconds": report.seconds,
        "faults": report.fault_counts(),
        "grants": counts.grants,
        "hand_overs": counts.hand_overs,
        "unknown": counts.unknowns,
        "died_holding": counts.died_holding,
        "lost": lost(report),
        "writes": counts.writes,
        "wait_p99_ms": counts.wait_p99 / 1e6,
        "wait_max_ms": counts.wait_max / 1e6,
        "broken": [str(violation) for violation in report.broken],
        "not_promised": [str(violation) for violation in report.excused],
        "complaints": report.errors,
    }
