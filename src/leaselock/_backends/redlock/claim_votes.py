"""What a client knows of one of its claims: how the masters have voted, and where it waits."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._backends.redlock.votes import Votes


class ClaimVotes:
    """The record of one claim, from its first request until it waits no more and is released."""

    __slots__ = ("failures", "given_back", "queued_at", "uncertain", "votes", "waiting_at")

    def __init__(self) -> None:
        self.forget_votes()
        self.forget_wait()

    def forget_votes(self) -> None:
        """No master has the claim, and no request about it is under way."""
        # Those of its latest try.
        self.votes: Votes | None = None
        # The votes, as master and token, that were given back: they never count again.
        self.given_back: set[tuple[int, int]] = set()
        # Whether a request for a vote may still be under way.
        self.uncertain = False

    def forget_wait(self) -> None:
        """The claim waits no more. Its votes are known on, unless they failed."""
        # The master where it queues, and the one that has answered that it is in the queue.
        self.queued_at: int | None = None
        self.waiting_at: int | None = None
        # How many of its tries had votes, and failed.
        self.failures = 0
        if self.votes is not None and self.votes.lost:
            self.votes = None

    def nothing_under_way(self) -> bool:
        """Whether no request about it can be under way: a try that all refuse has done nothing."""
        return not (self.uncertain or self.given_back)

    def is_over(self) -> bool:
        """Whether nothing is left to know."""
        return (
            self.votes is None
            and self.nothing_under_way()
            and self.queued_at is None
            and self.waiting_at is None
            and not self.failures
        )

    def valid(self, granted: Mapping[int, int]) -> dict[int, int]:
        """Those of the votes, tokens by master, that were not given back."""
        return {
            master: token
            for master, token in granted.items()
            if (master, token) not in self.given_back
        }

    def ending(self) -> set[int]:
        """The masters whose votes were given back, and that have not voted anew since then. The
        request that gives a vote back may arrive late, and end a vote that was counted.
        """
        voted = {} if self.votes is None else self.valid(self.votes.granted())
        return {master for master, _ in self.given_back}.difference(voted)


# The record of a claim of which nothing is known. It is never written.
UNKNOWN = ClaimVotes()
