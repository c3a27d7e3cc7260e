"""A forked child uses the client identifier and the claim numbers of its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.hold_registry import HoldRegistry

if TYPE_CHECKING:
    import pytest

STORY = "sqlite"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    begin = HoldRegistry.begin

    def again(self: HoldRegistry) -> None:
        named = getattr(self, "client", None), getattr(self, "serial", 0)
        begin(self)
        if named[0] is not None:
            self.client, self.serial = named[0], named[1]

    patch.setattr(HoldRegistry, "begin", again)
