"""The keeper renews one lease in each turn and forgets the others (hazard C4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.keeper import Keeper

if TYPE_CHECKING:
    import pytest

    from leaselock.core.lease import Hold

# Not long before the first seed that finds it, which takes its time.
FIRST = 350


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def is_due(self: Keeper, hold: Hold, now: float) -> bool:
        return hold is self.books.held()[0] and hold.renew and hold.believed(now)

    patch.setattr(Keeper, "_is_due", is_due)
