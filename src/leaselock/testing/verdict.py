"""What a checked history amounts to: its violations, and the figures that say what it proves."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leaselock.testing.fold import History
    from leaselock.testing.holds import Hold

_SHOWN_PER_KIND = 10


class Kind(enum.StrEnum):
    """The ways in which a history can be wrong."""

    OVERLAP = "overlap"  # two holders at once
    TOKEN_ORDER = "token-order"  # a later grant with a lower token
    TOKEN_REUSED = "token-reused"  # two grants with one token
    NESTED_TOKEN = "nested-token"  # a nested grant with another token
    REFUSAL = "unjustified-refusal"  # refused although nobody can have held it
    GHOST = "ghost-hold"  # idle too long after a crash or an unknown outcome
    STALL = "stalled-hand-over"  # idle too long after a release
    STALE_WRITE = "stale-write"  # accepted after a write with a higher token
    LOST_UPDATE = "lost-update"  # two accepted writes in one place of the order
    MALFORMED = "malformed"  # events that contradict one another
    VACUOUS = "vacuous"  # too little happened to prove anything


class Violation(NamedTuple):
    """One thing that must not be; `holds` are the ids of those involved."""

    kind: Kind
    lock: str
    message: str
    holds: tuple[int, ...] = ()

    def __str__(self) -> str:
        where = f" of lock {self.lock!r}" if self.lock else ""
        return f"{self.kind}{where}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How much happened. Waits are in ns and of granted attempts only."""

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
    fairness: float  # Jain's index of the grants per asking process: 1 is equal, 1/n is one only
    contention: float  # the part of answered attempts that found the lock taken

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
        """Whether nothing was found."""
        return not self.violations

    def kinds(self) -> set[Kind]:
        """The kinds of violation that were found."""
        return {violation.kind for violation in self.violations}

    def __str__(self) -> str:
        return "\n".join([str(self.counts), *_listing(self.violations)])


def _listing(violations: Sequence[Violation]) -> Iterable[str]:
    """A few violations of each kind, then how many there are in all."""
    shown: Counter[Kind] = Counter()
    for violation in violations:
        shown[violation.kind] += 1
        if shown[violation.kind] <= _SHOWN_PER_KIND:
            yield str(violation)
    found = ", ".join(f"{number} {kind}" for kind, number in sorted(shown.items()))
    yield f"VIOLATIONS: {found}" if found else "no violation"


def count(history: History) -> Counts:
    """The figures of a history."""
    holds = [hold for lock in history.locks.values() for hold in lock.holds]
    granted = [hold for hold in holds if hold.granted is not None]
    waits = sorted(hold.waited_until - hold.begun for hold in granted)
    refusals = sum(hold.refused is not None for hold in holds)
    hand_overs, contended = _successions(history)
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
        fairness=_jain(holds),
        contention=(contended + refusals) / answered if answered else 0.0,
    )


def _successions(history: History) -> tuple[int, int]:
    """How many grants went to another holder than the one before, and how many had to wait."""
    hand_overs = contended = 0
    for lock in history.locks.values():
        for before, after in pairwise(lock.grants()):
            hand_overs += (before.process, before.task) != (after.process, after.task)
            contended += after.begun < before.believed_until
    return hand_overs, contended


def _percentile(ordered: Sequence[int], percent: int) -> int:
    """The nearest-rank percentile; 0 of nothing."""
    return ordered[-(-len(ordered) * percent // 100) - 1] if ordered else 0


def _jain(holds: Iterable[Hold]) -> float:
    grants: Counter[object] = Counter()
    for hold in holds:
        grants[hold.process] += hold.granted is not None
    squares = len(grants) * sum(number * number for number in grants.values())
    return sum(grants.values()) ** 2 / squares if squares else 1.0
