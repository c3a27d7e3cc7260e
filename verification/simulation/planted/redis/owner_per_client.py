"""All threads or tasks of a client are one owner (hazard A5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redis import keys, packed_commands

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    for module in (keys, packed_commands):
        patch.setattr(module, "owner_of", lambda holder: holder.partition(":")[0] + ":1")
