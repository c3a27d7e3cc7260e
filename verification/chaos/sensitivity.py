"""What a green run is worth: how often the checker finds an overlap that was planted.

``python -m verification.chaos.sensitivity`` records a run of the chaos workers on SQLite,
without faults. Into copies of that history it plants overlaps: in one of N grants the store grants
the lock to the next waiter D ms before the release. What the waiter would have recorded then is
what it did record, D ms earlier, but not before its request nor before the hold that it overlaps.
All else stays, so that a find is due to the overlap. The history is cut into runs of a given number
of grants; the table has the part of the runs in which the checker reports it.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, NamedTuple

from testkit.chaos.run import LOCKS

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import Event, read_records
from leaselock.testing.verdict import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leaselock.testing.history import Hold
    from leaselock.testing.record_format import Record

MILLISECOND = 1_000_000
ONE_IN = (10, 50, 200, 1000)
LENGTHS_MS = (1, 10, 100)
GRANTS = (100, 1000)
WORKERS, LEASE = 4, 1.0
KINDS = ("threads", "asyncio")


class Succession(NamedTuple):
    """Two holds of one lock, one after the other, the second of which waited for the first."""

    holder: Hold
    waiter: Hold

    @property
    def gap(self) -> int:
        """From the record before the release to the record after the next grant, in ns."""
        return (self.waiter.granted or 0) - (self.holder.releasing or 0)


def record(folder: Path, seconds: float) -> list[Record]:
    """Record a run."""
    history = folder / "history"
    history.mkdir()
    module = "testkit.chaos.worker"
    url = f"sqlite:///{folder}/locks.db"
    arguments = [url, str(history), str(LEASE), "work", str(LOCKS)]
    workers = [
        subprocess.Popen([sys.executable, "-m", module, KINDS[n % len(KINDS)], *arguments])
        for n in range(WORKERS)
    ]
    try:
        time.sleep(seconds)  # the length of the run is what is measured
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return list(read_records(history))


def successions(history: History) -> Iterator[Succession]:
    """The grants that an early one could overlap, in the order of the history."""
    for lock in history.locks.values():
        for holder, waiter in pairwise(lock.grants()):
            waited = holder.releasing is not None and waiter.began < holder.releasing
            if waited and (holder.granted or 0) < (waiter.granted or 0):
                yield Succession(holder, waiter)


def planted(records: Sequence[Record], chosen: Sequence[Succession], early: int) -> list[Record]:
    """The records, with these grants *early* ns earlier."""
    moved: dict[int, int] = {}
    for holder, waiter in chosen:
        first = max(holder.granted or 0, waiter.began) + 1
        moved[waiter.ident] = min(waiter.granted or 0, max(first, (waiter.granted or 0) - early))
    return [
        each._replace(ts=moved[each.hold])
        if each.event is Event.GRANTED and each.hold in moved
        else each
        for each in records
    ]


def parts(records: Sequence[Record], grants: int) -> Iterator[list[Record]]:
    """The history in parts with *grants* grants each; a hold is in the part in which it begins."""
    begun: dict[int, int] = {}
    count = 0
    pieces: dict[int, list[Record]] = {}
    for each in sorted(records, key=lambda one: one.ts):
        if each.event is Event.GRANTED:
            count += 1
        pieces.setdefault(begun.setdefault(each.hold, count // grants), []).append(each)
    yield from (pieces[number] for number in range(count // grants))


def found(records: Sequence[Record], one_in: int, early: int, seed: int) -> bool:
    """Plant, and return whether the checker reports an overlap."""
    chance = random.Random(seed)
    chosen = [each for each in successions(History.of(records)) if chance.random() * one_in < 1.0]
    verdict = check(History.of(planted(records, chosen, early)))
    return Kind.OVERLAP in verdict.kinds()


def table(records: Sequence[Record]) -> Iterator[str]:
    """The table, in Markdown."""
    heads = [f"{grants:,} grants, {early} ms" for grants in GRANTS for early in LENGTHS_MS]
    yield "| one grant in | " + " | ".join(heads) + " |"
    yield "|---" * (len(heads) + 1) + "|"
    pieces = {grants: list(parts(records, grants)) for grants in GRANTS}
    for one_in in ONE_IN:
        cells = []
        for grants in GRANTS:
            for early in LENGTHS_MS:
                hits = [
                    found(piece, one_in, early * MILLISECOND, seed)
                    for seed, piece in enumerate(pieces[grants])
                ]
                cells.append(f"{sum(hits)} of {len(hits)}" if hits else "none")
        yield f"| {one_in:,} | " + " | ".join(cells) + " |"


def main() -> None:
    """Record, plant, check, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        records = record(Path(folder), options.seconds)
    history = History.of(records)
    verdict = check(history)
    print(verdict)
    gaps = sorted(each.gap for each in successions(history))
    grants = sum(len(lock.grants()) for lock in history.locks.values())
    print(f"{grants} grants, {100 * len(gaps) // grants} % of them with a waiter")
    holds = sorted(
        (hold.releasing or 0) - (hold.granted or 0)
        for lock in history.locks.values()
        for hold in lock.grants()
        if hold.releasing is not None
    )
    for what, values in (("gap between two holds", gaps), ("hold", holds)):
        shown = [f"{values[len(values) * n // 100] / MILLISECOND:.2f}" for n in (5, 50, 95)]
        print(f"{what}: 5 %, 50 %, 95 %: {', '.join(shown)} ms; {len(values)}")
    print(*table(records), sep="\n")


if __name__ == "__main__":
    main()
