"""Seeds of stories on PostgreSQL pass; terminated sessions show which guarantees remain."""

from __future__ import annotations

import pytest
from tests.simulation.halves import HALVES
from tests.simulation.seeds import must_pass
from tests.simulation.stories import play, report

SHOWN = 60


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [("sql", 35), ("sql sessions", 25), ("sql modes", 10), ("sql sessions modes", 15)],
)
def test_seeds_pass(kind: str, seeds: int, half: int) -> None:
    must_pass(kind, half * seeds, seeds)


def test_after_a_terminated_session_two_leases_overlap_until_the_loss_is_reported() -> None:
    kind = "sql sessions terminated"
    outcomes = [play(kind, seed) for seed in range(SHOWN)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(kind, failed[0])
    assert any(outcome.overlaps for outcome in outcomes)
