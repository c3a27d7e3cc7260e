"""A master that has not replied is sent the release at once, before its late grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    import pytest

    from leaselock.backends.redlock.votes import Ballot
    from leaselock.core.backend import Claim

# A short story that finds it: with the bug, long ones go on for long.
FIRST = 20001


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    ballot_of = Redlock._ballot

    async def hasty(self: Redlock, claim: Claim, *words: Any) -> Ballot:
        ballot = await ballot_of(self, claim, *words)
        for master in ballot.errors:
            self.pending_releases.add(master, claim)
        await self.pending_releases.start()
        return ballot

    patch.setattr(Redlock, "_ballot", hasty)
