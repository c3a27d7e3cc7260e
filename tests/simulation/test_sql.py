"""Seeds of stories on PostgreSQL pass; sessions that are ended by force show what that costs."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass
from tests.simulation.stories import play, report

SHOWN = 60


@pytest.mark.parametrize(("kind", "seeds"), [("sql", 70), ("sql sessions", 50)])
def test_seeds_pass(kind: str, seeds: int) -> None:
    must_pass(kind, 0, seeds)


def test_a_session_ended_by_force_lets_two_in_until_it_is_told() -> None:
    kind = "sql sessions that end"
    outcomes = [play(kind, seed) for seed in range(SHOWN)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(kind, failed[0])
    assert any(outcome.overlaps for outcome in outcomes)
