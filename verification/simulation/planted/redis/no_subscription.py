"""A waiter is queued without a subscription (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis.listener import Listener

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.redis.listener import Group
    from leaselock._backends.redis.messages import Subscription


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def none(self: Listener, group: Group) -> list[Subscription]:
        group.connection.refused.clear()
        return []

    patch.setattr(Listener, "_missing", none)
