"""Seeds of stories in which a lease is passed on within a client pass."""

from __future__ import annotations

import pytest
from tests.simulation.seeds import must_pass


@pytest.mark.parametrize(("kind", "seeds"), [("passing", 150), ("passing redis", 60)])
def test_seeds_pass(kind: str, seeds: int) -> None:
    must_pass(kind, 0, seeds)
