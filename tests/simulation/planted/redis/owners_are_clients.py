"""All threads or tasks of a client are one owner (hazard A5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.backends.redis import keys

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(keys, "owner_of", lambda holder: holder.partition(":")[0] + ":1")
