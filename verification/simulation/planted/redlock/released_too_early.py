"""A master that has not replied is sent the release at once, before its late grant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    import pytest

    from leaselock._backends.redlock.votes import Votes
    from leaselock._core.backend import Claim

# Of the stories that find it, one that ends soon: two hold the lock at once.
FAULTS = {"slow": 0.1}


def plant(patch: pytest.MonkeyPatch) -> None:
    """Put the bug in."""
    vote_of = Redlock._vote

    async def hasty(self: Redlock, claim: Claim, *words: Any) -> Votes:
        votes = await vote_of(self, claim, *words)
        for master in votes.errors:
            self.pending_releases.add(master, claim)
        await self.pending_releases.start()
        return votes

    patch.setattr(Redlock, "_vote", hasty)
