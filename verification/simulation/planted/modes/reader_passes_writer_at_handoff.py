"""A hand-off lets readers in that stand behind a writer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core import backend, rules

if TYPE_CHECKING:
    import pytest


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    def promote(row: rules.LockRow) -> None:
        holds = list(row.holds())
        if len(holds) == 1 and holds[0].mode == "upgrading":
            row.put(holds[0]._replace(mode="exclusive", token=row.draw(1)))
        if any(hold.mode in rules.CLOSED for hold in row.holds()):
            return
        for claim in list(rules.waiting(row, row.queue())):
            if backend.compatible(holds, claim, row.limit):
                row.quit(claim.id)
                holds.append(rules.grant(row, claim, rules.CONFIRM_WITHIN, offered=True))
            elif claim.mode == "permits":
                return

    patch.setattr(rules, "promote", promote)
