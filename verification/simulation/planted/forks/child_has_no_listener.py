"""A forked child uses its parent's listener, which does not exist there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.queue import NodeQueue

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(NodeQueue, "reset_identity", lambda self: None)
