"""Seeds of scenarios on a store that compares and sets one value pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.scenarios import play, report
from verification.simulation.seeds import must_pass

if TYPE_CHECKING:
    from collections.abc import Sequence

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
def test_seeds_pass(kind: str, seeds: int, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, seeds))


# 20050: nothing is seen of the store during the last request of a claim.
@pytest.mark.parametrize(
    "seeds", [(0, 20050), pytest.param(range(1, 12), marks=pytest.mark.statistical)], ids=len
)
def test_a_claim_that_others_outrun_gets_the_lock_or_a_refusal(seeds: Sequence[int]) -> None:
    failed = [seed for seed in seeds if play("document far", seed).violation]
    assert failed == [], report("document far", failed[0])


@pytest.mark.parametrize("kind", ["document stopped waiters", "document tries"])
@pytest.mark.parametrize(
    "seeds", [range(3), pytest.param(range(3, 12), marks=pytest.mark.statistical)], ids=len
)
def test_dead_clients_delay_the_others_as_little_as_is_said(kind: str, seeds: range) -> None:
    failed = [seed for seed in seeds if play(kind, seed).violation]
    assert failed == [], report(kind, failed[0])
