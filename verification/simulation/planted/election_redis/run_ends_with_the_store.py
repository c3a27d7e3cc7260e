"""`run` raises the error of a store that does not answer a campaign, instead of campaigning on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.election import Candidacy, Term

if TYPE_CHECKING:
    import pytest

# Only partitions, restarts and broken connections.
FAULTS = {"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""

    async def next_term(self: Candidacy) -> Term | None:
        term = Term(self)
        await term.begin()
        return term

    patch.setattr(Candidacy, "_next_term", next_term)
