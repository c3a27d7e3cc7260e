"""Seeds of scenarios on a store that compares and sets one value pass."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS
from verification.simulation.scenarios import play, report
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("document", 6),
        ("document modes", 5),
        ("document modes persistent", 3),
        ("numbered document", 3),
        ("document periods", 8),
    ],
)
def test_seeds_pass(kind: str, seeds: int, quarter: int) -> None:
    must_pass(kind, quarter * seeds, seeds)


def test_a_claim_that_others_outrun_gets_the_lock_or_a_refusal() -> None:
    # 20050: nothing is seen of the store during the last request of a claim.
    seeds = (*range(12), 20050)
    failed = [seed for seed in seeds if play("document far", seed).violation]
    assert failed == [], report("document far", failed[0])


@pytest.mark.parametrize("kind", ["document stopped waiters", "document tries"])
def test_dead_clients_delay_the_others_as_little_as_is_said(kind: str) -> None:
    failed = [seed for seed in range(12) if play(kind, seed).violation]
    assert failed == [], report(kind, failed[0])
