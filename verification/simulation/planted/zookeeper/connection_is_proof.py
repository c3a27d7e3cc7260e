"""A new connection counts as a proof of the session (hazard I1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.session_backend import SessionBackend
from leaselock._core.backend import WAKE_ALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    import pytest

STORY = "zookeeper ensemble"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    handle = SessionBackend._handle

    def hopeful(self: SessionBackend, events: Iterable[str]) -> None:
        received = tuple(events)
        if WAKE_ALL in received:
            self.last_proof = self.now()
        handle(self, received)

    patch.setattr(SessionBackend, "_handle", hopeful)
