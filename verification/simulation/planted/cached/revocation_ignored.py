"""A lease in use when another client requests it is cached nevertheless."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.local_handoff import SharedLease

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(SharedLease, "stop_handoff", lambda self: None)
