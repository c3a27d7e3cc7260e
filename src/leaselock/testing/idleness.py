"""A lock that nobody holds must go to whoever waits: soon after a release, later after a crash.

The sweep looks at the gaps in which nobody held the lock. A gap is a violation when somebody waited
in it beyond the bound: then either a dead or unknown holder kept the lock (a ghost), or a release
woke nobody (a stall). A winner that is frozen before it learns of its grant counts as a waiter, so
the bounds must exceed the freezes that a test injects.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.verdict import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.holds import Hold, LockHistory

_NEVER = 1 << 63


class _Gap(NamedTuple):
    """Nobody holds from `start` to `end`; idle beyond `allowed` is too long, `bound` for each."""

    start: int
    end: int
    allowed: int
    bound: int
    before: Hold


def idle_while_wanted(
    lock: LockHistory, ghost_bound: int | None, hand_over_bound: int | None
) -> Iterator[Violation]:
    """The gaps in which the lock stayed idle too long; a bound of None judges nothing."""
    if ghost_bound is None and hand_over_bound is None:
        return
    waiters = _Waiters(lock.holds)
    for gap in _gaps(lock.holds, ghost_bound, hand_over_bound):
        waiter = waiters.kept_waiting(gap)
        if waiter is not None:
            kind = Kind.STALL if gap.before.clean else Kind.GHOST
            text = f"{lock.tell(waiter)} waited, idle since {lock.tell(gap.before)}"
            yield Violation(kind, lock.name, text, (gap.before.ident, waiter.ident))


def _gaps(
    holds: list[Hold], ghost_bound: int | None, hand_over_bound: int | None
) -> Iterator[_Gap]:
    """The gaps that can be judged. What a ghost may keep, no later release can hand over."""
    ghost_until = -_NEVER
    before: Hold | None = None
    for start, hold in (*_occupants(holds), (_NEVER, None)):
        if before is not None and start > before.over:
            bound = hand_over_bound if before.clean else ghost_bound
            if bound is not None:
                allowed = max(ghost_until, before.over + bound)
                yield _Gap(before.over, start, allowed, bound, before)
        if hold is not None and not hold.clean:
            kept = _NEVER if ghost_bound is None else hold.over + ghost_bound
            ghost_until = max(ghost_until, kept)
        if before is None or (hold is not None and hold.over >= before.over):
            before = hold


def _occupants(holds: list[Hold]) -> list[tuple[int, Hold]]:
    """Who holds or may hold, by start: an attempt without an answer may have held all along."""
    found = [
        (hold.begun if hold.granted is None else hold.granted, hold)
        for hold in holds
        if hold.refused is None
    ]
    return sorted(found, key=lambda entry: (entry[0], entry[1].ident))


class _Waiters:
    """The waits of a lock, arranged so that each is looked at in one gap only."""

    __slots__ = ("begun", "by_begin", "longest")

    def __init__(self, holds: list[Hold]) -> None:
        self.by_begin = sorted(holds, key=lambda hold: (hold.begun, hold.ident))
        self.begun = [hold.begun for hold in self.by_begin]
        self.longest = list(accumulate(self.by_begin, _longer))

    def kept_waiting(self, gap: _Gap) -> Hold | None:
        """Somebody who waited too long in the gap."""
        first = bisect_right(self.begun, gap.start)
        last = bisect_right(self.begun, gap.end)
        earlier = self.longest[first - 1 : first] if first else []
        for hold in (*earlier, *self.by_begin[first:last]):
            if min(gap.end, hold.waited_until) > max(gap.allowed, hold.begun + gap.bound):
                return hold
        return None


def _longer(one: Hold, other: Hold) -> Hold:
    return max(one, other, key=lambda hold: hold.waited_until)
