"""The history of each lock, read from the records of all processes.

For each hold, two intervals are derived from the records. They err on opposite sides:
* The *certain interval*: the holder certainly considered its lease valid. Two certain intervals of
  one lock that overlap are a violation.
* The *possible interval*: the store may have kept the hold. An observation that no possible
  interval explains is a violation.

A process that dies holds nothing afterwards. It was certainly alive at its last record, and at the
time of a KILLED record, which is written before the signal is sent. Nothing more is assumed.

Records may come in any order and from any number of files.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from leaselock.testing.record_format import (
    FOREVER,
    MODES,
    Event,
    Process,
    read_names,
    read_records,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leaselock.testing.record_format import Record

# The field of a hold that keeps the time of each event.
_FIELDS = {
    Event.GRANTED: "granted",
    Event.REFUSED: "refused",
    Event.UNKNOWN: "unknown",
    Event.RELEASING: "releasing",
    Event.RELEASED: "released",
    Event.RELEASE_LOST: "release_lost",
    Event.LOST_REPORTED: "lost",
}


@dataclass(slots=True, eq=False)
class Hold:
    """One attempt to acquire, and its outcome. The time of an event that did not occur is None."""

    ident: int
    lock: int
    process: Process
    task: int
    last: int
    last_process: Process
    acquiring: int | None = None
    timeout: int = FOREVER
    granted: int | None = None
    refused: int | None = None
    unknown: int | None = None
    releasing: int | None = None
    released: int | None = None
    release_lost: int | None = None
    lost: int | None = None
    valid_until: int | None = None
    token: int | None = None
    other_token: int | None = None
    death: int = 0
    mode: str = "exclusive"
    permits: int = 0
    limit: int = 0

    @property
    def is_attempt(self) -> bool:
        """Whether it was an attempt to acquire: a write without a lock has a hold id, too."""
        known = (self.acquiring, self.granted, self.refused, self.unknown)
        return any(instant is not None for instant in known)

    @property
    def began(self) -> int:
        """When the attempt began, as far as recorded."""
        return self.answered if self.acquiring is None else self.acquiring

    @property
    def non_blocking(self) -> bool:
        """Whether the attempt was made with a timeout of 0."""
        return self.acquiring is not None and self.timeout == 0

    @property
    def certain_until(self) -> int:
        """The end of the certain interval: the earliest of release, loss, validity and death."""
        ends = (self.releasing, self.lost, self.valid_until)
        # Plus one, because at the time of its last record the process was still alive.
        return min([self.death + 1, *(end for end in ends if end is not None)])

    @property
    def certain_interval(self) -> tuple[int, int] | None:
        """The certain interval, its end excluded; None if it is empty."""
        if self.granted is None:
            return None
        end = self.certain_until
        return (self.granted, end) if end > self.granted else None

    @property
    def answered(self) -> int:
        """When the attempt was answered, or its process died."""
        answers = (self.granted, self.refused, self.unknown)
        return min((answer for answer in answers if answer is not None), default=self.death)

    @property
    def clean(self) -> bool:
        """Whether the store certainly keeps nothing of the hold after `possible_until`."""
        return self.released is not None or self.refused is not None

    @property
    def possible_until(self) -> int:
        """The last time at which the hold may have been renewed; its lease may end later."""
        if self.clean:
            return self.released if self.released is not None else self.answered
        ends = (self.release_lost, self.lost, self.unknown)
        return min((end for end in ends if end is not None), default=self.death)

    @property
    def died_holding(self) -> bool:
        """Whether its process died within the certain interval."""
        return self.certain_interval is not None and self.certain_until > self.death

    def is_beside(self, other: Hold) -> bool:
        """Whether both may hold the lock at once; permits are counted instead."""
        if self.permits and other.permits:
            return True
        modes = {self.mode, other.mode}
        return modes == {"shared"} or modes == {"shared", "update"}

    def contradictions(self) -> Iterator[str]:
        """Yield combinations of events that are impossible for one hold."""
        if self.granted is not None and self.refused is not None:
            yield "both granted and refused"
        if self.granted is not None and self.unknown is not None and self.unknown < self.granted:
            yield "granted after an unknown outcome, which requires a new attempt"
        if self.releasing is None and (self.released, self.release_lost) != (None, None):
            yield "released without RELEASING, so its end is not known"
        if self.releasing is not None and (self.granted, self.unknown) == (None, None):
            yield "released but never granted"


@dataclass(slots=True)
class Write:
    """A write that the protected resource accepted."""

    order: int
    token: int | None
    ts: int
    pid: int
    hold: int


@dataclass(slots=True)
class LockHistory:
    """All holds of one lock and all writes under it."""

    name: str
    start: int = 0
    holds: list[Hold] = field(default_factory=list)
    writes: list[Write] = field(default_factory=list)

    def grants(self) -> list[Hold]:
        """Return the granted holds in the order of their grants."""
        granted = [hold for hold in self.holds if hold.granted is not None]
        return sorted(granted, key=lambda hold: (hold.granted or 0, hold.ident))

    def describe(self, hold: Hold) -> str:
        """Return a hold as text: its process, its token, and its times."""
        if hold.granted is None:
            what, start, end = "attempt", hold.began, hold.answered
        else:
            what, start, end = f"token {hold.token}", hold.granted, hold.certain_until
        span = f"{self._at(start)} to {self._at(end)}"
        return f"[{what} of pid {hold.process.pid} task {hold.task}, {span}, {hold.ident:x}]"

    def describe_write(self, write: Write) -> str:
        """Return a write as text."""
        what = f"write {write.order} with token {write.token} of pid {write.pid}"
        return f"[{what} at {self._at(write.ts)}, {write.hold:x}]"

    def _at(self, ts: int) -> str:
        return f"{(ts - self.start) / 1e9:+.9f} s"


class History:
    """The history of every lock, and the number of processes that recorded it."""

    def __init__(self, names: Mapping[int, str] | None = None) -> None:
        self.locks: dict[int, LockHistory] = {}
        self._names = names or {}
        self._holds: dict[int, Hold] = {}
        self._renewals: dict[int, list[tuple[int, int]]] = {}
        # The first and the last record of each process.
        self._lifetimes: dict[Process, tuple[int, int]] = {}
        self._kills: list[tuple[int, int]] = []

    @classmethod
    def of(cls, records: Iterable[Record], names: Mapping[int, str] | None = None) -> History:
        """Build a history from records."""
        history = cls(names)
        for record in records:
            history._add(record)
        history._finish()
        return history

    @classmethod
    def read(cls, folder: str | Path) -> History:
        """Build a history from the files of a folder."""
        folder = Path(folder)
        return cls.of(read_records(folder), read_names(folder))

    @property
    def processes(self) -> int:
        """The number of processes that recorded anything."""
        return len(self._lifetimes)

    def _add(self, record: Record) -> None:
        process = Process(record.pid, record.born)
        first, last = self._lifetimes.get(process, (record.ts, record.ts))
        self._lifetimes[process] = (min(first, record.ts), max(last, record.ts))
        if record.event is Event.KILLED:
            self._kills.append((record.ts, record.aux))
        elif record.event is Event.WRITE_DONE:
            self._lock(record.lock).writes.append(_write(record))
            self._hold_of(record, process)
        else:
            self._apply(record, self._hold_of(record, process))

    def _lock(self, ident: int) -> LockHistory:
        lock = self.locks.get(ident)
        if lock is None:
            lock = self.locks[ident] = LockHistory(self._names.get(ident, f"#{ident:016x}"))
        return lock

    def _hold_of(self, record: Record, process: Process) -> Hold:
        hold = self._holds.get(record.hold)
        if hold is None:
            hold = Hold(record.hold, record.lock, process, record.task, record.ts, process)
            self._holds[record.hold] = hold
        if record.ts >= hold.last:
            hold.last, hold.last_process = record.ts, process
        return hold

    def _apply(self, record: Record, hold: Hold) -> None:
        if record.event is Event.ACQUIRING:
            hold.process, hold.task = Process(record.pid, record.born), record.task
            hold.acquiring, hold.timeout = record.ts, record.aux
        elif record.event is Event.SHARING:
            hold.mode = next(mode for mode, number in MODES.items() if number == record.aux)
        elif record.event is Event.PERMITS:
            hold.mode, hold.permits, hold.limit = "permits", record.aux, record.token or 0
        elif record.event is Event.VALID_UNTIL:
            self._renewals.setdefault(hold.ident, []).append((record.ts, record.aux))
        elif field_name := _FIELDS.get(record.event):
            _keep_first(hold, field_name, record)

    def _finish(self) -> None:
        deaths = self._deaths()
        for hold in self._holds.values():
            hold.death = deaths[hold.last_process]
            hold.valid_until = _validity(self._renewals.get(hold.ident, ()))
            if hold.is_attempt:
                self._lock(hold.lock).holds.append(hold)
        start = min((first for first, _ in self._lifetimes.values()), default=0)
        for lock in self.locks.values():
            lock.start = start

    def _deaths(self) -> dict[Process, int]:
        """Return the last time at which each process was certainly alive."""
        deaths = {process: last for process, (_, last) in self._lifetimes.items()}
        by_pid: dict[int, list[tuple[int, Process]]] = {}
        for process, (first, _) in self._lifetimes.items():
            by_pid.setdefault(process.pid, []).append((first, process))
        for ts, pid in self._kills:
            victim = _process_at(sorted(by_pid.get(pid, [])), ts)
            if victim is not None:
                deaths[victim] = max(deaths[victim], ts)
        return deaths


def _write(record: Record) -> Write:
    return Write(record.aux, record.token, record.ts, record.pid, record.hold)


def _keep_first(hold: Hold, field_name: str, record: Record) -> None:
    """Keep the first time of an event. A nested grant must have the token of the first one."""
    known: int | None = getattr(hold, field_name)
    if field_name == "granted":
        if known is not None and record.token != hold.token:
            hold.other_token = record.token
            return
        hold.token = record.token
    setattr(hold, field_name, record.ts if known is None else min(known, record.ts))


def _validity(renewals: Iterable[tuple[int, int]]) -> int | None:
    """Return until when the lease counted as held, after all its renewals.

    A renewal may shorten the lease; until it was recorded, the longer validity applied.
    """
    until: int | None = None
    for ts, instant in sorted(renewals):
        until = instant if until is None else max(instant, min(until, ts))
    return until


def _process_at(processes: list[tuple[int, Process]], ts: int) -> Process | None:
    """Of the processes that had one pid one after another, return the one that had it at `ts`."""
    position = bisect_right([first for first, _ in processes], ts)
    return processes[position - 1][1] if position else None
