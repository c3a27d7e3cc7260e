"""A claim for more permits than a new limit stays in the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules
from leaselock._core.backend import Resized

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Resize


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def resize(row: rules.LockRow, request: Resize) -> Resized:
        before = rules.seen(row)
        row.limit = request.limit
        return Resized(row.limit, rules.concluded(row, before, ""))

    patch.setattr(rules, "resize", resize)
