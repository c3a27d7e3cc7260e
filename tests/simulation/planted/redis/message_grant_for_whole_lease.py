"""A grant received in a message is considered valid for the whole lease."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.redis.places import Places
from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    import pytest

    from leaselock.core.backend import Grant


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = Places.told

    def told(self: Places, holder: str) -> Grant | None:
        grant = real(self, holder)
        return None if grant is None else grant._replace(lasts=FOREVER)

    patch.setattr(Places, "told", told)
