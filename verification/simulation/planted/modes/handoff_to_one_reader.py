"""A release grants the lock to one of several readers that wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pytest

    from leaselock._core.backend import Claim


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    real, all_waiting = rules.promote, rules.waiting

    def one(row: rules.LockRow, claims: Iterable[Claim]) -> Iterator[Claim]:
        for claim in all_waiting(row, claims):
            yield claim
            if not row.queued(claim.id):
                return

    def promote(row: rules.LockRow) -> None:
        with patch.context() as inner:
            inner.setattr(rules, "waiting", one)
            real(row)

    patch.setattr(rules, "promote", promote)
