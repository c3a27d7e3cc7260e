"""A holder considers its lease valid until a reply says otherwise (hazard C1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold import Hold, State

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def is_valid(self: Hold, now: float) -> bool:
        return self.state is State.HELD

    patch.setattr(Hold, "is_valid", is_valid)
