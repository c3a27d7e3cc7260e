"""Seeds of stories with local hand-off and cached leases pass."""

from __future__ import annotations

import pytest
from tests.simulation.halves import HALVES
from tests.simulation.seeds import must_pass

KINDS = [("local handoff", 40), ("local handoff redis", 15), ("cached", 40), ("cached redis", 15)]


# The later seeds include stories with forks.
@pytest.mark.parametrize("first", [0, 20_000])
@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, half: int, first: int) -> None:
    must_pass(kind, first + half * seeds, seeds)
