"""An upgrade does not write the node of the lock: those that it overtakes keep older tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper import conversions
from leaselock.backends.zookeeper.requests import Check, SetData

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def changed(path: str, data: bytes) -> Check | SetData:
        return SetData(path, data) if data else Check(path)

    patch.setattr(conversions, "SetData", changed)
