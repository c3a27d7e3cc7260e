"""The validity of a renewal is counted from its reply (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.renewer import Renewer

if TYPE_CHECKING:
    import pytest

    from leaselock._core.hold import Hold


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Renewer._renewed

    def renewed(self: Renewer, hold: Hold, asked: float, lease: float) -> None:
        real(self, hold, self.registry.env.now(), lease)

    patch.setattr(Renewer, "_renewed", renewed)
