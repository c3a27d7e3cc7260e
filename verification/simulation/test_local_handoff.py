"""Seeds of scenarios with local hand-off and cached leases pass."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier

KINDS = [
    ("local handoff", 20),
    ("local handoff redis", 8),
    ("local handoff document", 4),
    ("cached", 20),
    ("cached redis", 8),
]


# The later seeds include scenarios with forks.
@pytest.mark.parametrize("first", [0, 20_000])
@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, quarter: int, first: int) -> None:
    must_pass(kind, first + quarter * seeds, seeds)
