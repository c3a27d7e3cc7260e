"""A grant whose reply comes after the end of its lease is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.contender import Contender

if TYPE_CHECKING:
    import pytest

# Not long before the first seed that finds it, which takes its time.
FIRST = 410


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Contender, "has_ended", lambda self: False)
