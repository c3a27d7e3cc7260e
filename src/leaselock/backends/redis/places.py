"""Who of this client stands in line: tickets, and the news of grants.

Law: a grant that a message told of was made after the last answer, which said that the claim waits;
so it is good for its time from the question before that answer on. A message that came before the
answer may tell of a grant that is over: an answer drops all news of its claim.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.core.backend import Grant

if TYPE_CHECKING:
    from collections.abc import Callable

# For so many seconds after a wait its lock is taken to be wanted still.
WANTED = 1.0
MOST_WANTED = 1000
# How much of the grant's time may have passed since that question for the news to be enough. After
# a longer wait one more question does not matter, and is answered with the whole lease.
FRESH = 0.15


class Places:
    """The places of one client."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.tickets: dict[str, bytes] = {}
        self.asked: dict[str, float] = {}
        self.news: dict[str, tuple[int, float]] = {}

    def take(self, holder: str, ticket: bytes, asked: float) -> None:
        """The server answered the question of then: it waits."""
        self.tickets[holder], self.asked[holder] = ticket, asked

    def heard(self, holder: str, token: int, seconds: float) -> None:
        """A message said that it was granted the lock, for so long."""
        if holder in self.tickets:
            self.news[holder] = token, seconds

    def told(self, holder: str) -> Grant | None:
        """The grant, if there is news of one, and it is fresh; with that it leaves its place."""
        news = self.news.pop(holder, None) if self.news else None
        if news is None:
            return None
        token, lasts = news
        asked = self.asked[holder]
        if self.now() >= asked + lasts * FRESH:
            return None
        self.leave(holder)
        return Grant(token, (), asked, lasts)

    def leave(self, holder: str) -> bool:
        """It stands there no more, or anew; says whether it did."""
        if not self.tickets:
            return False
        self.news.pop(holder, None)
        self.asked.pop(holder, None)
        return self.tickets.pop(holder, None) is not None


class Wanted:
    """The locks that somebody stood in line for just now: a first try there is in vain.

    An entry is good for one.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.locks: dict[str, float] = {}

    def note(self, name: str) -> None:
        """Somebody waits for it."""
        if len(self.locks) > MOST_WANTED:
            self.locks.clear()
        self.locks[name] = self.now() + WANTED

    def take(self, name: str) -> bool:
        """Whether somebody did, just now."""
        return self.locks.pop(name, 0.0) > self.now()
