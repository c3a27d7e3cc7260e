"""The renewer renews one lease in each round and skips the others (hazard C4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.renewer import Renewer

if TYPE_CHECKING:
    import pytest

    from leaselock._core.hold import Hold


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def is_due(self: Renewer, hold: Hold, now: float) -> bool:
        return hold is self.registry.held()[0] and hold.renew and hold.is_valid(now)

    patch.setattr(Renewer, "_is_due", is_due)
