"""Elections, periods, limits per period, and holders that yield: seeds without a violation."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("election", 10),
        ("election redis", 3),
        ("election zookeeper", 6),
        ("periods", 30),
        ("periods redis", 20),
        ("sql periods", 20),
        ("rates", 15),
        ("rates document", 4),
        ("rates redis", 5),
        ("rates sql", 5),
        ("yields", 15),
        ("yields cached", 15),
        ("yields document", 8),
        ("yields local handoff", 15),
        ("yields redis", 8),
        ("yields sql", 10),
        ("yields sqlite", 15),
        ("yields zookeeper", 15),
    ],
)
def test_seeds_pass(kind: str, seeds: int, quarter: int) -> None:
    must_pass(kind, quarter * seeds, seeds)
