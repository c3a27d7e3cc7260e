"""A claim does not count the permits for which others are queued before it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import queue_order, semaphores

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.queue_order import Position


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = queue_order.position

    def position(nodes: tuple[str, ...], owner: str) -> Position | None:
        found = real(nodes, owner)
        return found and found._replace(ahead=None)

    patch.setattr(semaphores, "position", position)
