"""A row counts as locked although no statement locked it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.session_locks import SessionLocks

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from leaselock._backends.sql.executor import Executor


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def take_row(self: SessionLocks, values: Any, own: Executor) -> bool:
        await own.execute(("begin transaction", ("mark alive", values)))
        return True

    patch.setattr(SessionLocks, "take_row", take_row)
