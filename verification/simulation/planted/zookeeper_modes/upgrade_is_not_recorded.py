"""An upgrade does not write the node of the lock: those that it overtakes keep older tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import conversions

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(conversions, "rewriting", lambda lock: ())
