"""A new connection counts as a proof of the session (hazard I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.holds import Holds
from leaselock.core.backend import WAKE_ALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

STORY = "zookeeper ensemble"
FIRST = 21400


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    heard = Holds._heard

    def hopeful(self: Holds, paths: Iterable[str]) -> None:
        words = tuple(paths)
        if WAKE_ALL in words:
            self.proven = self.now()
        heard(self, words)

    patch.setattr(Holds, "_heard", hopeful)
