"""The rules that the history of each lock must obey; each is a sweep in O(n log n).

The check is sound: a reported violation never depends on scheduling, only on what holders
observed. If all certain intervals of a lock are disjoint, granting each at its GRANTED and
releasing each at its end is a legal order; if two overlap, no legal order exists. An attempt with
an unknown outcome has no certain interval. Of a read/write lock, intervals of readers may overlap;
of a semaphore, those whose permits are no more than there are.

A history with few events proves little: `Rules` states how much must have happened.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from leaselock.testing.idle_gaps import idle_while_waited_for
from leaselock.testing.verdict import Counts, Kind, Verdict, Violation, count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leaselock.testing.history import History, Hold, LockHistory

    # The beginning and the end of a time, and the hold that it is of.
    _Possible = tuple[int, int, Hold]

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
    violations = list(_too_little(counts, rules))
    for lock in history.locks.values():
        violations.extend(_check_lock(lock, rules))
    return Verdict(counts, tuple(violations))


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
    present: list[tuple[int, Hold]] = []
    for start, end, hold in _certain_intervals(lock):
        present = [(until, other) for until, other in present if until > start]
        conflicting = [entry for entry in present if not entry[1].is_beside(hold)]
        if conflicting:
            _, holder = max(conflicting, key=lambda entry: entry[0])
            text = f"{lock.describe(holder)} still held when granted to {lock.describe(hold)}"
            yield Violation(Kind.OVERLAP, lock.name, text, (holder.ident, hold.ident))
        present.append((end, hold))
        used = sum(other.permits for _, other in present)
        if used > max(other.limit for _, other in present):
            text = f"{used} permits were held when granted to {lock.describe(hold)}"
            yield Violation(Kind.OVERLAP, lock.name, text, (hold.ident,))


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
    granted. So the order is certain in two cases only: both holds have a certain interval and
    exclude each other, or one attempt had ended before the other began.
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
    highest: dict[str, Hold] = {}
    for _, _, hold in _certain_intervals(lock):
        if hold.token is None:
            continue
        excluded = [other for other in highest.values() if not other.is_beside(hold)]
        earlier = max(excluded, key=_token, default=hold)
        if hold.token < _token(earlier):
            yield earlier, hold
        highest[hold.mode] = _higher(highest.get(hold.mode, hold), hold)


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
    possible = list(_possible_intervals(lock, rules.ghost_bound))
    permits = _PossiblePermits(possible)
    tries = [hold for hold in lock.holds if hold.refused is not None and hold.non_blocking]
    # By what is asked for: a mode, or a number of permits.
    obstacles: dict[object, _PossibleHolds] = {}
    for hold in tries:
        wanted = (hold.mode, hold.permits)
        if wanted not in obstacles:
            obstacles[wanted] = _PossibleHolds(_obstacles(hold, possible, tries))
        began, ended = hold.began, hold.answered
        too_many = hold.permits and permits.used(began, ended) + hold.permits > hold.limit
        if not (too_many or obstacles[wanted].any(began, ended)):
            text = f"{lock.describe(hold)} was refused although the lock cannot have been held"
            yield Violation(Kind.REFUSAL, lock.name, text, (hold.ident,))


def _obstacles(
    hold: Hold, possible: list[_Possible], tries: list[Hold]
) -> Iterator[tuple[int, int]]:
    """Yield when a try like *hold* may be refused: by what conflicts with it; while another waits,
    for which the lock may be reserved; and by a try for more, which is ahead of it.
    """
    for start, end, other in possible:
        if not other.is_beside(hold):
            yield start, end
        else:
            yield start, end if other.granted is None else other.answered
    for other in tries:
        if other.permits > hold.permits or (other.mode == "exclusive" != hold.mode):
            yield other.began, other.answered


class _PossibleHolds:
    """When the lock may have been held, or reserved, by others."""

    def __init__(self, times: Iterable[tuple[int, int]]) -> None:
        possible = sorted(times)
        self.starts = [start for start, _ in possible]
        self.latest = list(accumulate((end for _, end in possible), max))

    def any(self, began: int, ended: int) -> bool:
        """Whether it may have been at some time from *began* to *ended*."""
        earlier = bisect_right(self.starts, ended)
        return bool(earlier) and self.latest[earlier - 1] >= began


class _PossiblePermits:
    """How many permits may have been held, or reserved."""

    def __init__(self, possible: list[_Possible]) -> None:
        by_start = sorted((start, hold.permits) for start, _, hold in possible)
        by_end = sorted((end, hold.permits) for _, end, hold in possible)
        self.starts, self.ends = [s for s, _ in by_start], [e for e, _ in by_end]
        self.begun = [0, *accumulate(permits for _, permits in by_start)]
        self.over = [0, *accumulate(permits for _, permits in by_end)]

    def used(self, began: int, ended: int) -> int:
        """The sum of those that may have been at some time from *began* to *ended*."""
        begun = self.begun[bisect_right(self.starts, ended)]
        return begun - self.over[bisect_left(self.ends, began)]


def _possible_intervals(lock: LockHistory, ghost_bound: int | None) -> Iterator[_Possible]:
    """Yield when the store may have kept the lock held, or reserved for the first waiter."""
    for hold in lock.holds:
        if hold.refused is not None and hold.non_blocking:
            continue
        if hold.clean:
            yield hold.began, hold.possible_until, hold
        else:
            ghost_until = _NEVER if ghost_bound is None else hold.possible_until + ghost_bound
            yield hold.began, ghost_until, hold


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
