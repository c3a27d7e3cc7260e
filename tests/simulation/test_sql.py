"""Seeds of stories on PostgreSQL pass."""

from __future__ import annotations

from tests.simulation.sql import play, report

SEEDS = 70


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"
