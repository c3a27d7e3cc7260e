"""Elections, periods, limits per period, and holders that yield: seeds without a violation."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.seeds import must_pass

pytestmark = [pytest.mark.covers, pytest.mark.first_tier]


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("election", 10),
        ("election redis", 3),
        ("election zookeeper", 6),
        ("periods", 30),
        ("periods redis", 40),
        ("sql periods", 20),
        ("rates", 15),
        ("rates document", 4),
        ("rates redis", 5),
        ("rates sql", 5),
        ("yields", 15),
        ("yields document", 8),
        ("yields redis", 8),
        ("yields sql", 10),
        ("yields sqlite", 15),
        ("yields zookeeper", 15),
    ],
)
def test_seeds_pass(kind: str, seeds: int, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, seeds))
