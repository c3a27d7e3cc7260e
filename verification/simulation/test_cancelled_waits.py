"""Seeds of scenarios in which waits are cancelled pass."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier

KINDS = [
    ("cancelled waits", 15),
    ("cancelled waits redis", 8),
    ("cancelled waits zookeeper", 10),
    ("cancelled waits sql", 8),
    ("cancelled waits sql sessions", 8),
    ("cancelled waits local handoff", 15),
]


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, quarter: int) -> None:
    must_pass(kind, quarter * seeds, seeds)


@pytest.mark.parametrize("first", [20_000, 20_006])
def test_seeds_on_several_masters_pass(first: int) -> None:
    must_pass("cancelled waits redlock", first, 6)
