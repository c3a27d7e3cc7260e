"""Seeds of stories on Redis pass; lost data and a clock that jumps show what they cost."""

from __future__ import annotations

from tests.simulation.seeds import must_pass
from tests.simulation.stories import play, report

SEEDS, SHOWN = 80, 60


def test_seeds_pass() -> None:
    must_pass("redis", 0, SEEDS)


def test_a_store_that_forgets_lets_two_in_and_their_tokens_tell_them_apart() -> None:
    """Each new grant has a token above all before, which the judge has checked: a fence knows."""
    kind = "redis that forgets"
    outcomes = [play(kind, seed) for seed in range(SHOWN)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(kind, failed[0])
    assert sum(outcome.overlaps > 0 for outcome in outcomes) > SHOWN // 10


def test_a_store_that_forgets_while_its_clock_is_behind_repeats_tokens() -> None:
    told = (play("redis that repeats", seed).violation or "" for seed in range(20))
    assert any("which does not rise" in violation for violation in told)
