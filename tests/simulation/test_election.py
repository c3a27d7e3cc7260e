"""Elections and periods: seeds without a violation."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass


@pytest.mark.parametrize(
    ("kind", "seeds"),
    [
        ("election", 20),
        ("election redis", 6),
        ("election zookeeper", 8),
        ("periods", 60),
        ("periods redis", 20),
        ("sql periods", 20),
    ],
)
def test_seeds_pass(kind: str, seeds: int) -> None:
    must_pass(kind, 0, seeds)
