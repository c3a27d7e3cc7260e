"""Seeds of scenarios on Redlock pass; lost data shows which guarantees remain."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.scenarios import play
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier

# How many of each quarter.
SEEDS = 7
# Seeds that show an overlap, which are few.
MAJORITY_LOSS = (18, 34, 102)
MINORITY_LOSS = (20126, 20270, 20522)


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_pass(quarter: tuple[float, float]) -> None:
    must_pass("redlock", *seeds_of(quarter, SEEDS))


@pytest.mark.parametrize("quarter", QUARTERS)
def test_a_minority_may_lose_data_that_a_majority_of_the_others_has(
    quarter: tuple[float, float],
) -> None:
    first, count = seeds_of(quarter, SEEDS)
    must_pass("redlock survivable loss", 20000 + first, count)


def test_lost_data_on_a_majority_grants_twice() -> None:
    """A restart without data breaks mutual exclusion in Redlock, which no client can prevent."""
    violations = (play("redlock majority loss", seed).violation or "" for seed in MAJORITY_LOSS)
    assert any("is held by" in violation for violation in violations)


def test_lost_data_on_a_minority_may_grant_twice_without_another_majority() -> None:
    violations = (play("redlock minority loss", seed).violation or "" for seed in MINORITY_LOSS)
    assert any("is held by" in violation for violation in violations)
