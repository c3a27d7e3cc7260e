"""A row counts as locked although no statement locked it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.seats import Own, Seats

if TYPE_CHECKING:
    from typing import Any

    import pytest

    from leaselock.backends.sql.seats import Steps

STORY = "sql sessions"


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def row(self: Seats, words: Any) -> Steps[bool]:
        yield Own(("open", ("seal", words)))
        return True

    patch.setattr(Seats, "_row", row)
