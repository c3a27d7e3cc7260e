"""A release grants nothing: the waiters have to ask."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest

    from leaselock._core.backend import Release, Released


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real = rules.release

    def release(row: rules.LockRow, request: Release) -> Released:
        with patch.context() as inner:
            inner.setattr(rules, "concluded", lambda row, before, asker: ())
            return real(row, request)

    patch.setattr(rules, "release", release)
