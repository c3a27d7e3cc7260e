"""A writer locks the row as a reader does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.session_locks import SessionLocks

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from leaselock._backends.sql.session_locks import Session


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = SessionLocks.values

    def values(self: SessionLocks, session: Session) -> dict[str, Any]:
        return {**real(self, session), "mode": "shared"}

    patch.setattr(SessionLocks, "values", values)
