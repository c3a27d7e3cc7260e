"""What a client knows of its places in the queues of the store: tickets, and messages of grants.

Invariant: a message that tells of a grant was sent after the last reply, which said that the claim
waits; so the grant is valid for its time, counted from the request before that reply. A message
that was read before a reply may tell of a grant that has ended: each reply drops it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.contract.backend import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

# Seconds after a wait for which its lock is assumed to be contended.
CONTENDED = 1.0
MOST_CONTENDED = 1000
# A message is used while no more than this part of the grant's time has passed since that request.
# After a longer wait one more request does not matter, and renews the grant for the whole lease.
FRESH = 0.15


class QueueState:
    """The queued claims of one client."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        self.tickets: dict[str, bytes] = {}
        self.sent_at: dict[str, float] = {}
        self.grants: dict[str, tuple[int, float]] = {}
        self.contended: dict[str, float] = {}

    def enqueue(self, holder: str, ticket: bytes, sent_at: float) -> None:
        """The request sent at *sent_at* was answered: the claim waits."""
        self.tickets[holder], self.sent_at[holder] = ticket, sent_at

    def notified(self, holder: str, token: int, seconds: float) -> None:
        """Record a message: the claim was granted the lock, for a number of seconds."""
        if holder in self.tickets:
            self.grants[holder] = token, seconds

    def grant(self, holder: str) -> Grant | None:
        """The grant that a message told of, if that is recent; the claim leaves the queue."""
        grant = self.grants.pop(holder, None) if self.grants else None
        if grant is None:
            return None
        token, lasts = grant
        sent_at = self.sent_at[holder]
        if self.now() >= sent_at + lasts * FRESH:
            return None
        self.leave(holder)
        return Grant(token, (), sent_at, lasts)

    def leave(self, holder: str) -> bool:
        """Forget the claim's position; says whether there was one."""
        if not self.tickets:
            return False
        self.grants.pop(holder, None)
        self.sent_at.pop(holder, None)
        return self.tickets.pop(holder, None) is not None

    def note_contention(self, name: str) -> None:
        """A claim waits for the lock: a try that does not queue would fail for a while."""
        if len(self.contended) > MOST_CONTENDED:
            self.contended.clear()
        self.contended[name] = self.now() + CONTENDED

    def is_contended(self, name: str) -> bool:
        """Whether a claim waited just now; each note is used once."""
        return bool(self.contended) and self.contended.pop(name, 0.0) > self.now()
