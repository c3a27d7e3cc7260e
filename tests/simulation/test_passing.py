"""Seeds of stories in which a lease is passed on within a client pass."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass

KINDS = [("passing", 80), ("passing redis", 30), ("sticky", 80), ("sticky redis", 30)]


# Some stories of the later ones have forks.
@pytest.mark.parametrize("first", [0, 20_000])
@pytest.mark.parametrize(("kind", "seeds"), KINDS)
def test_seeds_pass(kind: str, seeds: int, first: int) -> None:
    must_pass(kind, first, seeds)
