"""An update that has waited keeps the token that it drew when it entered the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import queue

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.zookeeper.contender import Contender


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = queue.is_outdated

    def is_outdated(contender: Contender, listed: object, *, waited: bool) -> bool:
        return real(contender, listed, waited=False)

    patch.setattr(queue, "is_outdated", is_outdated)
