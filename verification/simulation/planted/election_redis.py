"""Planted bugs of elections on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.plant import planted

from leaselock._backends.redis.backend import RedisBackend
from leaselock._core.client import watching
from leaselock._core.client.election import Candidacy, Term
from leaselock._core.client.hold import Hold, State
from leaselock._core.client.timing import Retry
from leaselock._core.contract.backend import Watched

if TYPE_CHECKING:
    import pytest

    from leaselock._core.contract.backend import Claim


# Only partitions, restarts and broken connections.
@planted(
    "election redis", faults={"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}
)
def leads_until_denied(patch: pytest.MonkeyPatch) -> None:
    """A leader that the store does not answer leads on until it hears that it was replaced."""
    patch.setattr(Hold, "is_valid", lambda self, now: self.state is State.HELD)


# Only partitions, restarts and broken connections.
@planted(
    "election redis", faults={"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}
)
def run_ends_with_the_store(patch: pytest.MonkeyPatch) -> None:
    """`run` raises the error of a store that does not answer a campaign, instead of campaigning
    on.
    """

    async def next_term(self: Candidacy) -> Term | None:
        term = Term(self)
        await term.begin()
        return term

    patch.setattr(Candidacy, "_next_term", next_term)


@planted("election redis")
def tracked_after_the_look(patch: pytest.MonkeyPatch) -> None:
    """A watcher has the key tracked after it has looked, and misses a change between the two."""
    real = RedisBackend.watch_lock

    async def watch_lock(self: RedisBackend, claim: Claim, until: float) -> Watched:
        (state,) = await self.inspect(claim.name, "*", until)
        return Watched(state, (await real(self, claim, until)).retry_after)

    patch.setattr(RedisBackend, "watch_lock", watch_lock)


# Only partitions, restarts and broken connections.
@planted(
    "election redis", faults={"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}
)
def watcher_ends_at_a_partition(patch: pytest.MonkeyPatch) -> None:
    """A watcher raises the error of a store that does not answer for a moment."""
    patch.setattr(watching, "TOLERATED_SILENCE", 1.0)


# Only partitions, restarts and broken connections.
@planted(
    "election redis", faults={"freeze": 0.0, "slow": 0.0, "lost_request": 0.0, "lost_reply": 0.0}
)
def watcher_ends_at_a_restart(patch: pytest.MonkeyPatch) -> None:
    """A watcher raises the error of a server that refuses connections while it restarts."""
    final = property(lambda retry: True, lambda retry, final: None)
    patch.setattr(Retry, "refusals_are_final", final)
