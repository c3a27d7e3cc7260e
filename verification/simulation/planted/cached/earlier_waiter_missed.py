"""A client that caches a lease does not check for waiters that came before its subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import local_handoff

if TYPE_CHECKING:
    import pytest

    from leaselock._core.local_handoff import LocalHandoff, SharedLease


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = local_handoff.is_alone

    async def is_alone(local: LocalHandoff, lease: SharedLease) -> bool:
        await real(local, lease)
        return True

    patch.setattr(local_handoff, "is_alone", is_alone)
