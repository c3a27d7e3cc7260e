"""The number of waiters in scenarios about many: few in the first tier, many in the second."""

from __future__ import annotations

import pytest
from tests.tiers import tier_of

FEW = 20


@pytest.fixture
def max_waiters(request: pytest.FixtureRequest) -> int | None:
    """How many wait at once in a scenario about many; None for as many as the store bears."""
    return FEW if tier_of(request.node) == "test" else None
