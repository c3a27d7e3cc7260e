"""The new first waiter is not notified, so it does not know when the holds end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def notify_changes(row: rules.LockRow, before: rules.Seen, asker: str) -> None:
        for hold in row.holds():
            if hold.id != asker and before.modes.get(hold.id) != hold.mode:
                row.notify(hold.id, hold.client)

    patch.setattr(rules, "notify_changes", notify_changes)
