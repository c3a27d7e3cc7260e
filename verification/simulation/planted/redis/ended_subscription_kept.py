"""A subscription that has ended is taken over by the next claim."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.listener import Listener

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.redis.listener import Group


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Listener._end

    def end(self: Listener, group: Group) -> None:
        real(self, group)
        if not self.pool.shared:
            self.vacant.setdefault(group.name, []).append(group)

    patch.setattr(Listener, "_end", end)
