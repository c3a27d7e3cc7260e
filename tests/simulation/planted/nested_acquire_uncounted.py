"""A nested acquire is not counted, so the inner release frees the lock (hazard A7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.mutex import Mutex

if TYPE_CHECKING:
    import pytest

    from leaselock.core.hold import Hold


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def nest(self: Mutex, hold: Hold) -> None:
        hold.check(self.registry.env.now(), "")

    patch.setattr(Mutex, "_nest", nest)
