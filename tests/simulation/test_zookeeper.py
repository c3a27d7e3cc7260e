"""Seeds of stories on ZooKeeper pass."""

from __future__ import annotations

import pytest
from tests.simulation.halves import HALVES
from tests.simulation.seeds import must_pass

KINDS = ("zookeeper", "zookeeper single", "zookeeper ensemble", "zookeeper ensemble single")


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("kind", KINDS)
def test_seeds_pass(kind: str, half: int) -> None:
    must_pass(kind, half * 40, 40)


@pytest.mark.parametrize(
    "kind", ["zookeeper modes", "zookeeper ensemble modes", "zookeeper modes persistent"]
)
def test_seeds_of_modes_pass(kind: str) -> None:
    must_pass(kind, 0, 20)
