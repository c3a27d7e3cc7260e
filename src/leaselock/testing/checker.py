"""The rules that the history of each lock must obey; each is a sweep in O(n log n).

The check is sound: a reported violation never depends on scheduling, only on what holders
observed. If all certain intervals of a lock are disjoint, granting each at its GRANTED and
releasing each at its end is a legal order; if two overlap, no legal order exists. An attempt with
an unknown outcome has no certain interval.

A history with few events proves little: `Rules` states how much must have happened.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from leaselock.testing.idle_gaps import idle_while_waited_for
from leaselock.testing.verdict import Counts, Kind, Verdict, Violation, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.history import History, Hold, LockHistory

_NEVER = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """How much a history must show, and how long a lock may stay idle while it is waited for.

    Without `ghost_bound` a hold of a dead process or with an unknown outcome may last for ever.
    That is sound, but justifies every later refusal.
    """

    min_grants: int = 1
    min_contention: float = 0.0
    min_unknown: int = 0
    min_died_holding: int = 0
    ghost_bound: int | None = None  # ns after a crash or loss: the lease and its detection
    hand_over_bound: int | None = None  # ns after a release


def check(history: History, rules: Rules | None = None) -> Verdict:
    """Apply all rules to all locks."""
    rules = Rules() if rules is None else rules
    counts = count(history)
    found = list(_too_little(counts, rules))
    for lock in history.locks.values():
        found.extend(_check_lock(lock, rules))
    return Verdict(counts, tuple(found))


def _check_lock(lock: LockHistory, rules: Rules) -> Iterator[Violation]:
    yield from _malformed(lock)
    yield from _overlaps(lock)
    yield from _reused_tokens(lock)
    yield from _decreasing_tokens(lock)
    yield from _unjustified_refusals(lock, rules)
    yield from idle_while_waited_for(lock, rules.ghost_bound, rules.hand_over_bound)
    yield from _writes(lock)


def _too_little(counts: Counts, rules: Rules) -> Iterator[Violation]:
    demands = (
        ("grants", counts.grants, rules.min_grants),
        ("contention", counts.contention, rules.min_contention),
        ("unknown outcomes", counts.unknowns, rules.min_unknown),
        ("deaths while holding", counts.died_holding, rules.min_died_holding),
    )
    for what, seen, least in demands:
        if seen < least:
            yield Violation(Kind.VACUOUS, "", f"{what}: {seen:g}, at least {least:g} are needed")


def _malformed(lock: LockHistory) -> Iterator[Violation]:
    for hold in lock.holds:
        if hold.other_token is not None:
            text = f"{lock.describe(hold)} was granted again with token {hold.other_token}"
            yield Violation(Kind.NESTED_TOKEN, lock.name, text, (hold.ident,))
        for contradiction in hold.contradictions():
            text = f"{lock.describe(hold)}: {contradiction}"
            yield Violation(Kind.MALFORMED, lock.name, text, (hold.ident,))


def _certain_intervals(lock: LockHistory) -> list[tuple[int, int, Hold]]:
    """Return the certain intervals of a lock by their start."""
    intervals = ((hold.certain_interval, hold) for hold in lock.grants())
    return [(*interval, hold) for interval, hold in intervals if interval is not None]


def _overlaps(lock: LockHistory) -> Iterator[Violation]:
    intervals = _certain_intervals(lock)
    if not intervals:
        return
    _, latest, holder = intervals[0]
    for start, end, hold in intervals[1:]:
        if start < latest:
            text = f"{lock.describe(holder)} still held when granted to {lock.describe(hold)}"
            yield Violation(Kind.OVERLAP, lock.name, text, (holder.ident, hold.ident))
        if end > latest:
            latest, holder = end, hold


def _reused_tokens(lock: LockHistory) -> Iterator[Violation]:
    first: dict[int, Hold] = {}
    for hold in lock.grants():
        if hold.token is None:
            continue
        other = first.setdefault(hold.token, hold)
        if other is not hold:
            text = f"{lock.describe(other)} and {lock.describe(hold)} have one token"
            yield Violation(Kind.TOKEN_REUSED, lock.name, text, (other.ident, hold.ident))


def _decreasing_tokens(lock: LockHistory) -> Iterator[Violation]:
    """Yield later grants with lower tokens.

    GRANTED is recorded when the holder learns of the grant, which may be long after the store
    granted. So the order is certain in two cases only: both holds have a certain interval, or one
    attempt had ended before the other began.
    """
    reported: set[int] = set()
    for higher, hold in (*_decreasing_among_certain(lock), *_decreasing_in_real_time(lock)):
        if hold.ident not in reported:
            reported.add(hold.ident)
            text = f"{lock.describe(hold)} was granted after {lock.describe(higher)}"
            yield Violation(Kind.TOKEN_ORDER, lock.name, text, (higher.ident, hold.ident))


def _token(hold: Hold) -> int:
    return -1 if hold.token is None else hold.token


def _higher(one: Hold, other: Hold) -> Hold:
    return max(one, other, key=_token)


def _decreasing_among_certain(lock: LockHistory) -> Iterator[tuple[Hold, Hold]]:
    highest: Hold | None = None
    for _, _, hold in _certain_intervals(lock):
        if hold.token is None:
            continue
        if highest is not None and hold.token < _token(highest):
            yield highest, hold
        else:
            highest = hold


def _decreasing_in_real_time(lock: LockHistory) -> Iterator[tuple[Hold, Hold]]:
    grants = [hold for hold in lock.grants() if hold.token is not None]
    ended = [hold.granted or 0 for hold in grants]
    highest = list(accumulate(grants, _higher))
    for hold in grants:
        # Strictly earlier: attempts that ended and began at the same time may have overlapped.
        earlier = bisect_right(ended, hold.began - 1)
        if earlier and _token(highest[earlier - 1]) > _token(hold):
            yield highest[earlier - 1], hold


def _unjustified_refusals(lock: LockHistory, rules: Rules) -> Iterator[Violation]:
    possible = sorted(_possible_intervals(lock, rules.ghost_bound))
    starts = [start for start, _ in possible]
    latest = list(accumulate((end for _, end in possible), max))
    for hold in lock.holds:
        if hold.refused is None or not hold.non_blocking:
            continue
        earlier = bisect_right(starts, hold.refused)
        if not earlier or latest[earlier - 1] < hold.began:
            text = f"{lock.describe(hold)} was refused although the lock cannot have been held"
            yield Violation(Kind.REFUSAL, lock.name, text, (hold.ident,))


def _possible_intervals(lock: LockHistory, ghost_bound: int | None) -> Iterator[tuple[int, int]]:
    """Yield when the store may have kept the lock held, or reserved for the first waiter."""
    for hold in lock.holds:
        if hold.refused is not None and hold.non_blocking:
            continue
        if hold.clean:
            yield hold.began, hold.possible_until
        else:
            yield hold.began, _NEVER if ghost_bound is None else hold.possible_until + ghost_bound


def _writes(lock: LockHistory) -> Iterator[Violation]:
    """Check that tokens of accepted writes never decrease in the order of the resource."""
    highest, last = None, None
    for write in sorted(lock.writes, key=lambda write: (write.order, write.ts)):
        if last is not None and write.order == last.order:
            text = f"{lock.describe_write(write)} overwrote {lock.describe_write(last)}"
            yield Violation(Kind.LOST_UPDATE, lock.name, text, (last.hold, write.hold))
        last = write
        if write.token is None:
            continue
        if highest is not None and write.token < (highest.token or 0):
            text = f"{lock.describe_write(write)} was accepted after {lock.describe_write(highest)}"
            yield Violation(Kind.STALE_WRITE, lock.name, text, (highest.hold, write.hold))
        else:
            highest = write
