"""A grant that was never reported to its user costs the whole period."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.backend import Claim

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def unused(self: Claim) -> Claim:
        return self

    patch.setattr(Claim, "unused", unused)
