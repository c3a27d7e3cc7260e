"""All threads or tasks of a client are one owner (hazard A5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redis import keys, ready

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    for module in (keys, ready):
        patch.setattr(module, "owner_of", lambda holder: holder.partition(":")[0] + ":1")
