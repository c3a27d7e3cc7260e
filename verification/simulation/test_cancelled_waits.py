"""Seeds of scenarios in which waits are cancelled pass."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.seeds import must_pass

pytestmark = [pytest.mark.covers, pytest.mark.first_tier]

KINDS = [
    ("cancelled waits", 15),
    ("cancelled waits redis", 8),
    ("cancelled waits zookeeper", 10),
    ("cancelled waits sql", 8),
    ("cancelled waits sql sessions", 8),
]


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, seeds))


@pytest.mark.parametrize("quarter", QUARTERS)
def test_seeds_on_several_masters_pass(quarter: tuple[float, float]) -> None:
    first, count = seeds_of(quarter, 6)
    must_pass("cancelled waits redlock", 20_000 + first, count)
