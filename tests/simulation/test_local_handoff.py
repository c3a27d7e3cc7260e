"""Seeds of stories with local hand-off and cached leases pass."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass

KINDS = [("local handoff", 80), ("local handoff redis", 30), ("cached", 80), ("cached redis", 30)]


# The later seeds include stories with forks.
@pytest.mark.parametrize("first", [0, 20_000])
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, first: int) -> None:
    must_pass(kind, first, seeds)
