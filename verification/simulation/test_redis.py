"""Seeds of scenarios on Redis pass; lost data and a clock that jumps show what remains."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.redis import trim_always
from verification.simulation.scenarios import play, report
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier

# How many of each quarter.
SEEDS, MODES, PERSISTENT = 20, 10, 5
SHOWN = 30


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_pass(quarter: tuple[float, float]) -> None:
    must_pass("redis", *seeds_of(quarter, SEEDS))


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_with_readers_writers_and_permits_pass(quarter: tuple[float, float]) -> None:
    must_pass("redis modes", *seeds_of(quarter, MODES))
    must_pass("redis modes persistent", *seeds_of(quarter, PERSISTENT))
    must_pass("numbered redis", *seeds_of(quarter, PERSISTENT))


def test_seeds_pass_while_each_release_trims_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    trim_always(monkeypatch)
    must_pass("redis", 0, SEEDS // 4)
    must_pass("redis modes", 0, MODES // 4)


def test_after_data_loss_two_leases_overlap_and_tokens_still_increase() -> None:
    """The judge has checked that tokens increase, so fencing still works."""
    kind = "redis data loss"
    outcomes = [play(kind, seed) for seed in range(SHOWN)]
    failed = [outcome.seed for outcome in outcomes if outcome.violation]
    assert failed == [], report(kind, failed[0])
    assert sum(outcome.overlaps > 0 for outcome in outcomes) > SHOWN // 10


def test_data_loss_with_a_clock_that_is_behind_repeats_tokens() -> None:
    violations = (play("redis data loss slow clock", seed).violation or "" for seed in range(20))
    assert any("which does not increase" in violation for violation in violations)
