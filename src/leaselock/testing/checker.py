"""The rules that every history of a lock must keep, each a sweep in O(n log n), lock by lock.

Sound: what is reported is never a matter of scheduling, only of what holders were told. If all
cores of a lock are disjoint, granting each at its GRANTED and releasing each at the end of its core
is a legal order; if two overlap, no legal order exists. An attempt with an unknown outcome claims
nothing and costs nothing.

A history that shows little proves little: `Rules` states the least that must have happened.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from leaselock.testing.idleness import idle_while_wanted
from leaselock.testing.verdict import Counts, Kind, Verdict, Violation, count

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leaselock.testing.fold import History
    from leaselock.testing.holds import Hold, LockHistory

_NEVER = 1 << 63


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a history must show, and how long a lock may stay idle while somebody waits for it.

    Without `ghost_bound` a crashed or unknown holder may keep its lock for ever, which is sound but
    justifies every refusal after it.
    """

    min_grants: int = 1
    min_contention: float = 0.0
    min_unknown: int = 0
    min_died_holding: int = 0
    ghost_bound: int | None = None  # ns after a crash or loss: the lease, and noticing its end
    hand_over_bound: int | None = None  # ns after a release


def check(history: History, rules: Rules | None = None) -> Verdict:
    """Apply all rules to all locks."""
    rules = Rules() if rules is None else rules
    counts = count(history)
    found = list(_vacuous(counts, rules))
    for lock in history.locks.values():
        found.extend(_check_lock(lock, rules))
    return Verdict(counts, tuple(found))


def _check_lock(lock: LockHistory, rules: Rules) -> Iterator[Violation]:
    yield from _malformed(lock)
    yield from _overlaps(lock)
    yield from _reused_tokens(lock)
    yield from _falling_tokens(lock)
    yield from _unjustified_refusals(lock, rules)
    yield from idle_while_wanted(lock, rules.ghost_bound, rules.hand_over_bound)
    yield from _writes(lock)


def _vacuous(counts: Counts, rules: Rules) -> Iterator[Violation]:
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
        if hold.other_fence is not None:
            text = f"{lock.tell(hold)} was granted again with token {hold.other_fence}"
            yield Violation(Kind.NESTED_TOKEN, lock.name, text, (hold.ident,))
        for text in hold.contradictions():
            told = f"{lock.tell(hold)}: {text}"
            yield Violation(Kind.MALFORMED, lock.name, told, (hold.ident,))


def _cores(lock: LockHistory) -> list[tuple[int, int, Hold]]:
    """The cores of a lock by their start."""
    cores = ((hold.core, hold) for hold in lock.grants())
    return [(*core, hold) for core, hold in cores if core is not None]


def _overlaps(lock: LockHistory) -> Iterator[Violation]:
    cores = _cores(lock)
    if not cores:
        return
    _, latest, holder = cores[0]
    for start, end, hold in cores[1:]:
        if start < latest:
            text = f"{lock.tell(holder)} still held when granted to {lock.tell(hold)}"
            yield Violation(Kind.OVERLAP, lock.name, text, (holder.ident, hold.ident))
        if end > latest:
            latest, holder = end, hold


def _reused_tokens(lock: LockHistory) -> Iterator[Violation]:
    first: dict[int, Hold] = {}
    for hold in lock.grants():
        if hold.fence is None:
            continue
        other = first.setdefault(hold.fence, hold)
        if other is not hold:
            text = f"{lock.tell(other)} and {lock.tell(hold)} have one token"
            yield Violation(Kind.TOKEN_REUSED, lock.name, text, (other.ident, hold.ident))


def _falling_tokens(lock: LockHistory) -> Iterator[Violation]:
    """Later grants with lower tokens.

    GRANTED is recorded when the holder learnt of it, which may be long after the store granted. So
    the order is certain in two cases only: the lock was believed held at both instants, or one
    attempt had ended before the other began.
    """
    reported: set[int] = set()
    for higher, hold in (*_falling_among_cores(lock), *_falling_in_real_time(lock)):
        if hold.ident not in reported:
            reported.add(hold.ident)
            text = f"{lock.tell(hold)} was granted after {lock.tell(higher)}"
            yield Violation(Kind.TOKEN_ORDER, lock.name, text, (higher.ident, hold.ident))


def _fence(hold: Hold) -> int:
    return -1 if hold.fence is None else hold.fence


def _higher(one: Hold, other: Hold) -> Hold:
    return max(one, other, key=_fence)


def _falling_among_cores(lock: LockHistory) -> Iterator[tuple[Hold, Hold]]:
    highest: Hold | None = None
    for _, _, hold in _cores(lock):
        if hold.fence is None:
            continue
        if highest is not None and hold.fence < _fence(highest):
            yield highest, hold
        else:
            highest = hold


def _falling_in_real_time(lock: LockHistory) -> Iterator[tuple[Hold, Hold]]:
    grants = [hold for hold in lock.grants() if hold.fence is not None]
    ended = [hold.granted or 0 for hold in grants]
    highest = list(accumulate(grants, _higher))
    for hold in grants:
        # Strictly earlier: at one and the same instant the two attempts may have overlapped.
        before = bisect_right(ended, hold.begun - 1)
        if before and _fence(highest[before - 1]) > _fence(hold):
            yield highest[before - 1], hold


def _unjustified_refusals(lock: LockHistory, rules: Rules) -> Iterator[Violation]:
    possible = sorted(_possible_holds(lock, rules.ghost_bound))
    starts = [start for start, _ in possible]
    latest = list(accumulate((end for _, end in possible), max))
    for hold in lock.holds:
        if hold.refused is None or not hold.non_blocking:
            continue
        before = bisect_right(starts, hold.refused)
        if not before or latest[before - 1] < hold.begun:
            text = f"{lock.tell(hold)} was refused although nobody can have held it"
            yield Violation(Kind.REFUSAL, lock.name, text, (hold.ident,))


def _possible_holds(lock: LockHistory, ghost_bound: int | None) -> Iterator[tuple[int, int]]:
    """When the store may have kept the lock, or kept it for somebody first in the queue."""
    for hold in lock.holds:
        if hold.refused is not None and hold.non_blocking:
            continue
        if hold.clean:
            yield hold.begun, hold.over
        else:
            yield hold.begun, _NEVER if ghost_bound is None else hold.over + ghost_bound


def _writes(lock: LockHistory) -> Iterator[Violation]:
    """Fenced exclusion: in the order of the resource, no accepted write has a falling fence."""
    highest, place = None, None
    for write in sorted(lock.writes, key=lambda write: (write.order, write.ts)):
        if place is not None and write.order == place.order:
            text = f"{lock.tell_write(write)} took the place of {lock.tell_write(place)}"
            yield Violation(Kind.LOST_UPDATE, lock.name, text, (place.hold, write.hold))
        place = write
        if write.fence is None:
            continue
        if highest is not None and write.fence < (highest.fence or 0):
            text = f"{lock.tell_write(write)} was accepted after {lock.tell_write(highest)}"
            yield Violation(Kind.STALE_WRITE, lock.name, text, (highest.hold, write.hold))
        else:
            highest = write
