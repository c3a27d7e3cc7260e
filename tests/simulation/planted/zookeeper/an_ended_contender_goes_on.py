"""A grant that arrives after its lease has ended is treated as valid."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.zookeeper.contender import Contender

if TYPE_CHECKING:
    import pytest

# Shortly before the first seed that finds it.
FIRST = 410


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(Contender, "has_ended", lambda self: False)
