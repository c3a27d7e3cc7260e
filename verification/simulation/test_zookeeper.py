"""Seeds of scenarios on ZooKeeper pass."""

from __future__ import annotations

import pytest
from verification.simulation.quarters import QUARTERS, seeds_of
from verification.simulation.seeds import must_pass

pytestmark = pytest.mark.first_tier

KINDS = ("zookeeper", "zookeeper single", "zookeeper ensemble", "zookeeper ensemble single")


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize("kind", KINDS)
def test_seeds_pass(kind: str, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, 20))


@pytest.mark.parametrize("quarter", QUARTERS)
@pytest.mark.parametrize(
    "kind",
    [
        *("zookeeper modes", "zookeeper ensemble modes", "zookeeper modes persistent"),
        *("numbered zookeeper", "numbered zookeeper ensemble"),
    ],
)
def test_seeds_of_modes_pass(kind: str, quarter: tuple[float, float]) -> None:
    must_pass(kind, *seeds_of(quarter, 10))
