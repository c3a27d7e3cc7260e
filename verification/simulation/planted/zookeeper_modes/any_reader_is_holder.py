"""The claim behind one of several readers counts as the next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.queue_order import Position

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Position, "is_next", property(lambda self: self.first.mode == "shared"))
