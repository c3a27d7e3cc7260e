"""One permit more than the limit is granted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.semaphores import View

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(View, "permits", property(lambda view: sorted(view.children)[1:]))
