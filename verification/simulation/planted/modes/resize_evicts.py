"""A smaller limit takes their permits from the holders that exceed it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Resize, Resized


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.resize

    def resize(row: rules.LockRow, request: Resize) -> Resized:
        used = 0
        for hold in row.holds():
            used += hold.permits
            if hold.mode == "permits" and used > request.limit:
                row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "resize", resize)
