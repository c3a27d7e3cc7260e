"""A client that caches a lease does not check for waiters that came before its subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import cached_lease

if TYPE_CHECKING:
    import pytest

    from leaselock.core.local import Local
    from leaselock.core.turns import Anchor


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = cached_lease._alone

    async def alone(local: Local, anchor: Anchor) -> bool:
        await real(local, anchor)
        return True

    patch.setattr(cached_lease, "_alone", alone)
