"""Seeds of stories on ZooKeeper pass."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass


@pytest.mark.parametrize("kind", ["zookeeper", "zookeeper single"])
def test_seeds_pass(kind: str) -> None:
    must_pass(kind, 0, 80)
