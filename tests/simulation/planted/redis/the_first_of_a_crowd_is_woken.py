"""A message wakes the first waiting task of a client, whomever it names (hazard E1)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast.backends.redis import listening

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(listening, "holder_of", lambda word: word)
