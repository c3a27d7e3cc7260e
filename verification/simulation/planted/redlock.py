"""Planted bugs of Redlock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.plant import planted

from leaselock._backends.redlock import protocol
from leaselock._backends.redlock.protocol import Redlock
from leaselock._backends.redlock.votes import Votes

if TYPE_CHECKING:
    import pytest

    from leaselock._core.contract.backend import Claim


@planted("redlock")
def half_is_majority(patch: pytest.MonkeyPatch) -> None:
    """One vote fewer than a majority is enough (hazard H3)."""
    patch.setattr(Votes, "quorum", property(lambda votes: votes.masters // 2))


# Not long before the first short scenario that finds it.
@planted("redlock")
def no_tombstone_on_silent_master(patch: pytest.MonkeyPatch) -> None:
    """No tombstone is written on a master at which a request may still arrive (hazard D2)."""
    release = Redlock.release

    async def careless(self: Redlock, claim: Claim, *, tombstone: bool, until: float) -> bool:
        self._known(claim).uncertain = False
        return await release(self, claim, tombstone=False, until=until)

    patch.setattr(Redlock, "release", careless)


# Of the scenarios that find it, one that ends soon: two hold the lock at once.
@planted("redlock", faults={"slow": 0.1})
def released_too_early(patch: pytest.MonkeyPatch) -> None:
    """A master that has not replied is sent the release at once, before its late grant."""
    vote_of = Redlock._vote

    async def hasty(self: Redlock, claim: Claim, *words: Any) -> Votes:
        votes = await vote_of(self, claim, *words)
        for master in votes.errors:
            self.pending_releases.add(master, claim)
        await self.pending_releases.start()
        return votes

    patch.setattr(Redlock, "_vote", hasty)


@planted("redlock")
def tokens_not_written_back(patch: pytest.MonkeyPatch) -> None:
    """The greatest token is not written to the masters with smaller ones (hazard H7)."""
    patch.setattr(protocol, "agreed", lambda tokens, quorum: True)
