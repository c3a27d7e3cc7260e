"""A hold is considered valid for longer than the server keeps an idle session (hazard B2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core import timing

if TYPE_CHECKING:
    import pytest

STORY = "sql sessions"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    proven_until = timing.proven_until
    patch.setattr(timing, "proven_until", lambda asked, session: proven_until(asked, 5 * session))
    patch.setattr(timing, "PROVEN", 5 * timing.PROVEN)
