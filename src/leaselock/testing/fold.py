"""From records to holds, in whatever order the records come and from however many files."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from leaselock.testing.holds import Hold, LockHistory, Write
from leaselock.testing.records import Event, Process, read_names, read_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from leaselock.testing.records import Record

_SLOTS = {
    Event.GRANTED: "granted",
    Event.REFUSED: "refused",
    Event.UNKNOWN: "unknown",
    Event.RELEASING: "releasing",
    Event.RELEASED: "released",
    Event.RELEASE_LOST: "release_lost",
    Event.LOST_TOLD: "lost",
}


class History:
    """The holds of every lock, and how many processes recorded them."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self.locks: dict[int, LockHistory] = {}
        self._names = names or {}
        self._holds: dict[int, Hold] = {}
        self._renewals: dict[int, list[tuple[int, int]]] = {}
        self._lives: dict[Process, tuple[int, int]] = {}
        self._kills: list[tuple[int, int]] = []

    @classmethod
    def of(cls, records: Iterable[Record], names: Mapping[int, str] | None = None) -> History:
        """Fold records, from files or from a simulation."""
        history = cls(names)
        for record in records:
            history._add(record)
        history._settle()
        return history

    @classmethod
    def read(cls, folder: Path) -> History:
        """Fold what a folder holds."""
        return cls.of(read_records(folder), read_names(folder))

    @property
    def processes(self) -> int:
        """How many processes recorded anything."""
        return len(self._lives)

    def _add(self, record: Record) -> None:
        process = Process(record.pid, record.born)
        first, last = self._lives.get(process, (record.ts, record.ts))
        self._lives[process] = (min(first, record.ts), max(last, record.ts))
        if record.event is Event.KILLED:
            self._kills.append((record.ts, record.aux))
        elif record.event is Event.WRITE_DONE:
            self._lock(record.lock).writes.append(_write(record))
            self._touch(record, process)
        else:
            self._note(self._touch(record, process), record)

    def _lock(self, ident: int) -> LockHistory:
        lock = self.locks.get(ident)
        if lock is None:
            lock = self.locks[ident] = LockHistory(self._names.get(ident, f"#{ident:016x}"))
        return lock

    def _touch(self, record: Record, process: Process) -> Hold:
        hold = self._holds.get(record.hold)
        if hold is None:
            hold = Hold(record.hold, record.lock, process, record.task, record.ts, process)
            self._holds[record.hold] = hold
        if record.ts >= hold.last:
            hold.last, hold.toucher = record.ts, process
        return hold

    def _note(self, hold: Hold, record: Record) -> None:
        if record.event is Event.ASKED:
            hold.process, hold.task = Process(record.pid, record.born), record.task
            hold.asked, hold.timeout = record.ts, record.aux
        elif record.event is Event.VALID_UNTIL:
            self._renewals.setdefault(hold.ident, []).append((record.ts, record.aux))
        elif slot := _SLOTS.get(record.event):
            _keep_first(hold, slot, record)

    def _settle(self) -> None:
        deaths = self._deaths()
        for hold in self._holds.values():
            hold.death = deaths[hold.toucher]
            hold.valid = _validity(self._renewals.get(hold.ident, ()))
            if hold.attempted:
                self._lock(hold.lock).holds.append(hold)
        start = min((first for first, _ in self._lives.values()), default=0)
        for lock in self.locks.values():
            lock.start = start

    def _deaths(self) -> dict[Process, int]:
        """The last instant at which each process was certainly alive."""
        deaths = {process: last for process, (_, last) in self._lives.items()}
        lives: dict[int, list[tuple[int, Process]]] = {}
        for process, (first, _) in self._lives.items():
            lives.setdefault(process.pid, []).append((first, process))
        for ts, pid in self._kills:
            victim = _living_at(sorted(lives.get(pid, [])), ts)
            if victim is not None:
                deaths[victim] = max(deaths[victim], ts)
        return deaths


def _write(record: Record) -> Write:
    return Write(record.aux, record.fence, record.ts, record.pid, record.hold)


def _keep_first(hold: Hold, slot: str, record: Record) -> None:
    """Note an event of which the first counts; a nested grant must bring the token of the first."""
    known: int | None = getattr(hold, slot)
    if slot == "granted":
        if known is not None and record.fence != hold.fence:
            hold.other_fence = record.fence
            return
        hold.fence = record.fence
    setattr(hold, slot, record.ts if known is None else min(known, record.ts))


def _validity(renewals: Iterable[tuple[int, int]]) -> int | None:
    """Until when the lease counted as held, after all its renewals.

    A renewal may shorten. What was believed before it was recorded was believed all the same.
    """
    until: int | None = None
    for ts, instant in sorted(renewals):
        until = instant if until is None else max(instant, min(until, ts))
    return until


def _living_at(lives: list[tuple[int, Process]], ts: int) -> Process | None:
    """Of the processes that had one pid after another, the one that had it at `ts`."""
    position = bisect_right([first for first, _ in lives], ts)
    return lives[position - 1][1] if position else None
