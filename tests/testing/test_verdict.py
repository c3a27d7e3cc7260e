"""The figures of a history, minimum requirements, and the text of a verdict."""

from __future__ import annotations

import pytest
from tests.testing.histories import HistoryBuilder

from leaselock.testing.checker import Rules
from leaselock.testing.record_format import Event
from leaselock.testing.verdict import Kind


def test_empty_history_is_vacuous() -> None:
    verdict = HistoryBuilder().check()
    assert verdict.kinds() == {Kind.VACUOUS}
    assert verdict.counts.fairness == 1.0
    assert "grants: 0" in str(verdict)


@pytest.mark.parametrize(
    "demand",
    [
        Rules(min_grants=3),
        Rules(min_contention=0.6),
        Rules(min_unknown=1),
        Rules(min_died_holding=1),
    ],
)
def test_history_below_a_minimum_is_vacuous(demand: Rules) -> None:
    builder = HistoryBuilder()
    builder.hold(10, 20, 1)
    builder.release(builder.grant(30, 2, began=15), 40)
    assert builder.check(Rules(min_grants=2, min_contention=0.5)).ok
    assert builder.check(demand).kinds() == {Kind.VACUOUS}


def test_counts() -> None:
    builder = HistoryBuilder()
    for number in range(100):
        start = 1000 * (number + 1)
        pid = 1 if number < 75 else 2
        hold = builder.grant(start, number, pid=pid, began=start - number - 1)
        builder.release(hold, start + 500, pid=pid)
    builder.refuse(1200, 1201, pid=1)
    builder.put(500_001, Event.UNKNOWN, builder.acquiring(500_000, pid=1), pid=1)
    counts = builder.check().counts
    assert (counts.grants, counts.attempts, counts.refusals, counts.unknowns) == (100, 102, 1, 1)
    assert (counts.wait_p50, counts.wait_p99, counts.wait_max) == (50, 99, 100)
    assert (counts.locks, counts.processes, counts.hand_overs) == (1, 2, 1)
    assert counts.fairness == pytest.approx(100**2 / (2 * (75**2 + 25**2)))


def test_verdict_lists_a_few_violations_and_counts_all() -> None:
    builder = HistoryBuilder()
    for number in range(30):
        builder.hold(100 + number, 1000, number, pid=number + 1)
    text = str(builder.check())
    assert text.count("still held when granted to") == 10
    assert text.endswith("VIOLATIONS: 29 overlap")
