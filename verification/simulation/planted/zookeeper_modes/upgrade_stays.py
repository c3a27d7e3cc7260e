"""The end of an upgraded hold leaves the node of the upgrade."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.contender import Contender

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def paths(self: Contender) -> list[str]:
        return [self.node.path] if self.node is not None else []

    patch.setattr(Contender, "paths", property(paths))
