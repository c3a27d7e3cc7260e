"""Histories to check: written by hand, or generated and valid by construction."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

from hypothesis import strategies as st

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.record_format import FOREVER, Event, Record, lock_id, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.verdict import Verdict

LOCK = "nightly"
BOUNDS = Rules(ghost_bound=100, hand_over_bound=30)


def events(folder: Path) -> list[Event]:
    """What the records in a directory say, in their order."""
    return [record.event for record in read_records(folder)]


def only_file(folder: Path, suffix: str = ".hist") -> Path:
    """The file of that kind in a directory, which has one."""
    (path,) = folder.glob(f"*{suffix}")
    return path


class HistoryBuilder:
    """Records written by hand, with small round numbers instead of nanoseconds."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._holds = itertools.count(1)

    def put(
        self, ts: int, event: Event, hold: int, pid: int = 1, token: int | None = None, aux: int = 0
    ) -> None:
        self.records.append(Record(ts, event, lock_id(LOCK), hold, pid, 0, 0, token, aux))

    def acquiring(self, ts: int, *, pid: int = 1, timeout: int = FOREVER) -> int:
        hold = next(self._holds)
        self.put(ts, Event.ACQUIRING, hold, pid, aux=timeout)
        return hold

    def grant(
        self,
        ts: int,
        token: int | None = None,
        *,
        pid: int = 1,
        began: int | None = None,
        valid: int | None = None,
    ) -> int:
        hold = self.acquiring(ts - 1 if began is None else began, pid=pid)
        self.put(ts, Event.GRANTED, hold, pid, token)
        if valid is not None:
            self.put(ts, Event.VALID_UNTIL, hold, pid, token, valid)
        return hold

    def hold(self, start: int, end: int, token: int | None = None, *, pid: int = 1) -> int:
        """Add a hold that is released cleanly, one tick after its end."""
        hold = self.grant(start, token, pid=pid)
        self.release(hold, end, pid=pid)
        return hold

    def release(self, hold: int, ts: int, *, pid: int = 1) -> None:
        self.put(ts, Event.RELEASING, hold, pid)
        self.put(ts + 1, Event.RELEASED, hold, pid)

    def refuse(self, asked: int, ts: int, *, timeout: int = 0, pid: int = 9) -> int:
        hold = self.acquiring(asked, pid=pid, timeout=timeout)
        self.put(ts, Event.REFUSED, hold, pid)
        return hold

    def write(self, ts: int, order: int, token: int | None, hold: int = 0, pid: int = 1) -> None:
        self.put(ts, Event.WRITE_DONE, hold, pid, token, order)

    def kill(self, ts: int, pid: int, by: int = 99) -> None:
        self.records.append(Record(ts, Event.KILLED, 0, 0, by, aux=pid))

    def history(self) -> History:
        return History.of(self.records, {lock_id(LOCK): LOCK})

    def check(self, rules: Rules | None = None) -> Verdict:
        return check(self.history(), rules)


class Step(NamedTuple):
    """One hold: how it ends, and how long each part takes."""

    end: str
    gap: int
    length: int
    wait: int
    rise: int
    tries: int
    pid: int


ENDS = ("released", "lost", "expired", "killed", "died", "unknown")


def steps(ends: tuple[str, ...] = ENDS, least: int = 1) -> st.SearchStrategy[list[Step]]:
    step = st.builds(
        Step,
        end=st.sampled_from(ends),
        gap=st.integers(1, 20),
        length=st.integers(4, 50),
        wait=st.integers(1, 90),
        rise=st.integers(1, 3),
        tries=st.integers(0, 2),
        pid=st.integers(1, 4),
    )
    return st.lists(step, min_size=least, max_size=12)


def valid(turns: list[Step]) -> HistoryBuilder:
    """Return one hold after another: only what users of a correct lock may observe."""
    builder, now, token = HistoryBuilder(), 1000, 0
    for number, step in enumerate(turns):
        token += step.rise
        start = now + step.gap
        _turn(builder, step, number, start, token)
        now = start + step.length + 1
    return builder


def _turn(builder: HistoryBuilder, step: Step, number: int, start: int, token: int) -> None:
    end = start + step.length
    # A dead process must not write records again.
    pid = 100 + number if step.end in ("killed", "died") else step.pid
    if step.end == "unknown":
        builder.put(end, Event.UNKNOWN, builder.acquiring(start, pid=pid), pid)
        return
    valid_until = end if step.end == "expired" else None
    hold = builder.grant(start, token, pid=pid, began=start - step.wait, valid=valid_until)
    builder.write(start + 1, start, token, hold, pid)
    for attempt in range(step.tries):
        builder.refuse(start + attempt, start + attempt + 1)
    _finish(builder, step, hold, pid, end)


def _finish(builder: HistoryBuilder, step: Step, hold: int, pid: int, end: int) -> None:
    if step.end == "released":
        builder.release(hold, end, pid=pid)
    elif step.end == "lost":
        builder.put(end, Event.LOST_REPORTED, hold, pid)
    elif step.end == "expired":
        # The process resumes long after its lease, while another one holds the lock.
        builder.put(end + 40, Event.RELEASING, hold, pid)
        builder.put(end + 41, Event.RELEASE_LOST, hold, pid)
    elif step.end == "killed":
        builder.kill(end, pid)
