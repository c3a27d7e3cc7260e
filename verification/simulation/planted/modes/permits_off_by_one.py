"""One permit more than the limit is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import backend

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest

    from leaselock._core.backend import Claim, HoldRecord


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = backend.compatible

    def compatible(others: Sequence[Claim | HoldRecord], claim: Claim, limit: int = 0) -> bool:
        return real(others, claim, limit + 1)

    patch.setattr("leaselock._core.rules.compatible", compatible)
