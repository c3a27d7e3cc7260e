"""The greatest token is not written to the masters with smaller ones (hazard H7)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.redlock import protocol

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    patch.setattr(protocol, "agreed", lambda tokens, quorum: True)
