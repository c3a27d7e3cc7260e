"""Seeds of stories on ZooKeeper pass."""

from __future__ import annotations

from tests.simulation.zoo import play, report

SEEDS = 100


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"
