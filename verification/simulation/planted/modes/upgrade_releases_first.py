"""An upgrade that has to wait gives up its update hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Convert, Converted


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.convert

    def convert(row: rules.LockRow, request: Convert) -> Converted:
        hold = rules.find(row, request.claim.id)
        if hold is not None and request.mode == "exclusive" and len(row.holds()) > 1:
            row.remove(hold.id)
        return real(row, request)

    patch.setattr(rules, "convert", convert)
