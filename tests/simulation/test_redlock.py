"""Seeds of stories on Redlock pass, and lost data shows what it costs."""

from __future__ import annotations

from tests.simulation.redlock import ForgetfulStory, play, report

SEEDS = 80


def test_seeds_pass() -> None:
    outcomes = [play(seed) for seed in range(SEEDS)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(failed[0])
    assert sum(outcome.grants for outcome in outcomes) > 5 * SEEDS, "the stories are empty"


def test_masters_that_forget_let_two_in() -> None:
    """What no client can mend is shown, not hidden: a restart without data breaks a Redlock."""
    told = (play(seed, kind=ForgetfulStory).violation or "" for seed in range(SEEDS))
    assert any("is believed held by" in violation for violation in told)
