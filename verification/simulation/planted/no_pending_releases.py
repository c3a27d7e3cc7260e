"""A cancelled acquire does not release its claim (hazards D1, F1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold_registry import HoldRegistry

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def release_later(self: HoldRegistry, claim: Claim) -> None:
        self.backend.forget(claim)

    patch.setattr(HoldRegistry, "release_later", release_later)
