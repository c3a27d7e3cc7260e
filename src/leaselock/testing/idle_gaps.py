"""A free lock must be granted to a waiter: soon after a release, later after a crash.

The sweep examines the gaps in which the lock was not held. A gap is a violation if an attempt
waited in it for longer than the bound: either a hold with a dead owner or an unknown outcome kept
the lock (a ghost hold), or a release woke no waiter (a stalled hand-over). A process that is frozen
before it learns of its grant counts as a waiter, so the bounds must exceed injected freezes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from leaselock.testing.verdict import Kind, Violation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.history import Hold, LockHistory

_NEVER = 1 << 63


class _Gap(NamedTuple):
    """A time in which the lock is not held, from `start` to `end`.

    It may stay idle until `allowed`, and for `bound` after a waiter's arrival.
    """

    start: int
    end: int
    allowed: int
    bound: int
    previous: Hold


def idle_while_waited_for(
    lock: LockHistory, ghost_bound: int | None, hand_over_bound: int | None
) -> Iterator[Violation]:
    """Yield the gaps in which the lock stayed idle too long; a bound of None disables a check."""
    if ghost_bound is None and hand_over_bound is None:
        return
    waiters = _Waiters(lock.holds)
    for gap in _gaps(lock.holds, ghost_bound, hand_over_bound):
        waiter = waiters.kept_waiting(gap)
        if waiter is not None:
            kind = Kind.STALL if gap.previous.clean else Kind.GHOST
            text = f"{lock.describe(waiter)} waited, idle since {lock.describe(gap.previous)}"
            yield Violation(kind, lock.name, text, (gap.previous.ident, waiter.ident))


def _gaps(
    holds: list[Hold], ghost_bound: int | None, hand_over_bound: int | None
) -> Iterator[_Gap]:
    """Yield the gaps that can be checked. A later release cannot hand over what a ghost keeps."""
    ghost_until = -_NEVER
    previous: Hold | None = None
    for start, hold in (*_possible_holders(holds), (_NEVER, None)):
        if previous is not None and start > previous.possible_until:
            bound = hand_over_bound if previous.clean else ghost_bound
            if bound is not None:
                allowed = max(ghost_until, previous.possible_until + bound)
                yield _Gap(previous.possible_until, start, allowed, bound, previous)
        if hold is not None and not hold.clean:
            kept = _NEVER if ghost_bound is None else hold.possible_until + ghost_bound
            ghost_until = max(ghost_until, kept)
        if hold is None:
            continue
        if previous is None or hold.possible_until >= previous.possible_until:
            previous = hold


def _possible_holders(holds: list[Hold]) -> list[tuple[int, Hold]]:
    """Return holds that are certain or possible, by start: an unanswered attempt may hold."""
    gaps = [
        (hold.began if hold.granted is None else hold.granted, hold)
        for hold in holds
        if hold.refused is None
    ]
    return sorted(gaps, key=lambda entry: (entry[0], entry[1].ident))


class _Waiters:
    """The waits of a lock, sorted so that each is examined in one gap only."""

    __slots__ = ("began", "by_begin", "longest")

    def __init__(self, holds: list[Hold]) -> None:
        self.by_begin = sorted(holds, key=lambda hold: (hold.began, hold.ident))
        self.began = [hold.began for hold in self.by_begin]
        self.longest = list(accumulate(self.by_begin, _longer))

    def kept_waiting(self, gap: _Gap) -> Hold | None:
        """Return an attempt that waited too long in the gap, or None."""
        first = bisect_right(self.began, gap.start)
        last = bisect_right(self.began, gap.end)
        earlier = self.longest[first - 1 : first] if first else []
        for hold in (*earlier, *self.by_begin[first:last]):
            if min(gap.end, hold.answered) > max(gap.allowed, hold.began + gap.bound):
                return hold
        return None


def _longer(one: Hold, other: Hold) -> Hold:
    return max(one, other, key=lambda hold: hold.answered)
