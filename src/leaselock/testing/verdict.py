"""The result of a check: the violations found, and figures on how much was checked."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock.testing.history import History, Hold

_SHOWN_PER_KIND = 10


class Kind(enum.StrEnum):
    """The kinds of violation."""

    OVERLAP = "overlap"  # two holders at once
    TOKEN_ORDER = "token-order"  # a later grant with a lower token
    TOKEN_REUSED = "token-reused"  # two grants with one token
    NESTED_TOKEN = "nested-token"  # a nested grant with another token
    REFUSAL = "unjustified-refusal"  # refused although the lock cannot have been held
    GHOST = "ghost-hold"  # idle too long after a crash or an unknown outcome
    STALL = "stalled-hand-over"  # idle too long after a release
    STALE_WRITE = "stale-write"  # accepted after a write with a higher token
    LOST_UPDATE = "lost-update"  # two accepted writes with one position in the order
    MALFORMED = "malformed"  # events that contradict one another
    VACUOUS = "vacuous"  # too little happened to prove anything


class Violation(NamedTuple):
    """One violation; `holds` are the ids of the holds involved."""

    kind: Kind
    lock: str
    message: str
    holds: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" of lock {self.lock!r}" if self.lock else ""
        return f"{self.kind}{where}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Figures of a history. Waits are in ns, and of granted attempts only."""

    locks: int
    processes: int
    attempts: int
    grants: int
    hand_overs: int  # consecutive grants to different threads or tasks
    refusals: int
    unknowns: int
    died_holding: int
    writes: int
    wait_p50: int
    wait_p99: int
    wait_max: int
    fairness: float  # Jain's index of grants per process: 1 all equal, 1/n one process got all
    contention: float  # the fraction of answered attempts that found the lock held

    def __str__(self) -> str:
        waits = [f"{wait / 1e6:.3f} ms" for wait in (self.wait_p50, self.wait_p99, self.wait_max)]
        return (
            f"{self.grants} grants of {self.locks} locks to {self.processes} processes, "
            f"{self.hand_overs} hand-overs, {self.refusals} refusals, {self.unknowns} unknown\n"
            f"{self.died_holding} died holding, {self.writes} writes, "
            f"contention {self.contention:.2f}, fairness (Jain) {self.fairness:.3f}\n"
            f"wait: p50 {waits[0]}, p99 {waits[1]}, longest {waits[2]}"
        )


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check."""

    counts: Counts
    violations: tuple[Violation, ...]

    @property
    def ok(self) -> bool:
        """Whether no violation was found."""
        return not self.violations

    def kinds(self) -> set[Kind]:
        """Return the kinds of violation that were found."""
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        return "\n".join([str(self.counts), *_lines(self.violations)])


def _lines(violations: Sequence[Violation]) -> Iterable[str]:
    """Yield the first violations of each kind, then the number of all."""
    reported: Counter[Kind] = Counter()
    for violation in violations:
        reported[violation.kind] += 1
        if reported[violation.kind] <= _SHOWN_PER_KIND:
            yield str(violation)
    summary = ", ".join(f"{number} {kind}" for kind, number in sorted(reported.items()))
    yield f"VIOLATIONS: {summary}" if summary else "no violation"


def count(history: History) -> Counts:
    """Return the figures of a history."""
    holds = [hold for lock in history.locks.values() for hold in lock.holds]
    granted = [hold for hold in holds if hold.granted is not None]
    waits = sorted(hold.answered - hold.began for hold in granted)
    refusals = sum(hold.refused is not None for hold in holds)
    hand_overs, contended = _count_successions(history)
    answered = len(granted) + refusals
    return Counts(
        locks=len(history.locks),
        processes=history.processes,
        attempts=len(holds),
        grants=len(granted),
        hand_overs=hand_overs,
        refusals=refusals,
        unknowns=sum(hold.unknown is not None for hold in holds),
        died_holding=sum(hold.died_holding for hold in granted),
        writes=sum(len(lock.writes) for lock in history.locks.values()),
        wait_p50=_percentile(waits, 50),
        wait_p99=_percentile(waits, 99),
        wait_max=_percentile(waits, 100),
        fairness=_jain_index(holds),
        contention=(contended + refusals) / answered if answered else 0.0,
    )


def _count_successions(history: History) -> tuple[int, int]:
    """Return how many grants changed the holder, and how many had to wait."""
    hand_overs = contended = 0
    for lock in history.locks.values():
        for previous, after in pairwise(lock.grants()):
            hand_overs += (previous.process, previous.task) != (after.process, after.task)
            contended += after.began < previous.certain_until
    return hand_overs, contended


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """Return the nearest-rank percentile; 0 if there are no values."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def _jain_index(holds: Iterable[Hold]) -> float:
    grants: Counter[object] = Counter()
    for hold in holds:
        grants[hold.process] += hold.granted is not None
    squares = len(grants) * sum(number * number for number in grants.values())
    return sum(grants.values()) ** 2 / squares if squares else 1.0
