"""A conversion to a weaker mode grants no waiter."""

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
        with patch.context() as inner:
            if request.mode != "exclusive":
                inner.setattr(rules, "concluded", lambda row, before, asker: ())
            return real(row, request)

    patch.setattr(rules, "convert", convert)
