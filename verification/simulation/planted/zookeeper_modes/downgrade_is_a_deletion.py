"""A downgrade deletes the writer's node without a change before: that looks like a release."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper import conversions
from leaselock._backends.zookeeper.requests import Check, SetData

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def changed(path: str, data: bytes) -> Check | SetData:
        return Check(path) if data else SetData(path, data)

    patch.setattr(conversions, "SetData", changed)
