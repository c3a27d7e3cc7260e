"""The validity of a grant is counted from its reply (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.acquisition import Acquisition

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Acquisition._valid_until

    def valid_until(self: Acquisition, grant: Grant) -> float:
        self.asked = self.env.now()
        return real(self, grant)

    patch.setattr(Acquisition, "_valid_until", valid_until)
