"""Readers among writers: processes that read without pause, and one that writes.

Each contestant is measured on its own store. It is verified that a write overlaps no other hold.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contender_group import ContenderGroup, verify_limit
from benchmarks.contestants import READ_WRITE
from benchmarks.figures import percentile, spread
from benchmarks.mode_stores import prepared
from benchmarks.tables import Goal, Table
from benchmarks.workloads.contention import alternate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.mode_stores import Preparation
    from benchmarks.scale import Scale
    from benchmarks.workers.contender import HoldTimes

HOLDS = (0.01, 0.0)
HEAD = [
    *("contestant", "writer: longest wait / longest read", "reads/s", "writes/s"),
    *("writer waits p50, ms", "longest, ms", "of all, ms"),
    *("reader waits p50, ms", "longest, ms", "of all, ms", "client CPU, µs"),
]
# The longest wait of the writer, as a multiple of the longest read; where a request takes long,
# of the longest read and one hold of every process without hold time, which is requests alone.
MAX_WAIT, MAX_WAIT_AND_TURN = 2.0, 1.5
WITH_GOAL, WITH_TURN_GOAL = ("redis",), ("zookeeper", "sql-lease")


class ReadersSample(NamedTuple):
    """The figures of one measurement of one contestant; times are in seconds."""

    reads: float
    """Reads per second of all readers together."""
    writes: float
    read_wait: float
    """The median wait."""
    longest_read_wait: float
    write_wait: float
    longest_write_wait: float
    longest_read: float
    """The longest time for which a reader held the lock."""
    cpu: float
    """CPU time of all clients together, per hold."""

    @property
    def over_read(self) -> float:
        """The longest wait of the writer, as a multiple of the longest read."""
        return self.longest_write_wait / self.longest_read

    def turn(self, processes: int) -> float:
        """The time in which each of these processes has one hold."""
        return processes / (self.reads + self.writes)


Samples = dict[str, list[ReadersSample]]


def run(scale: Scale) -> list[Table]:
    """Measure all contestants that have a read/write lock."""
    with prepared(READ_WRITE) as preparation:
        return measure(preparation, scale)


def measure(preparation: Preparation, scale: Scale) -> list[Table]:
    """Measure these contestants, with each hold time."""
    modes = ["read"] * scale.contenders + ["write"]
    groups = [ContenderGroup(name, modes, prepare) for name, prepare in preparation.items()]

    def sample(group: ContenderGroup, hold: float) -> ReadersSample:
        by_process, cpu = group.contend(hold, scale.contention_seconds)
        return summary(group.name, by_process, cpu)

    by_hold = alternate(groups, HOLDS, scale.contention_rounds, sample)
    turns = {
        name: spread([one.turn(scale.contenders + 1) for one in mine]).median
        for name, mine in by_hold[0.0].items()
    }
    return [table_of(rounds, scale, hold, turns) for hold, rounds in by_hold.items()]


def summary(name: str, by_process: Sequence[Sequence[HoldTimes]], cpu: float) -> ReadersSample:
    """Verify the holds of the readers and of the writer, which is last; return the figures."""
    *readers, writes = by_process
    reads = [hold for mine in readers for hold in mine]
    verify_limit(
        name,
        [*((hold, 1) for hold in reads), *((hold, len(readers)) for hold in writes)],
        len(readers),
    )
    holds = [*reads, *writes]
    duration = max(hold.released for hold in holds) - min(hold.requested for hold in holds)
    read_waits, write_waits = waits(reads), waits(writes)
    return ReadersSample(
        reads=len(reads) / duration * 1e9,
        writes=len(writes) / duration * 1e9,
        read_wait=percentile(read_waits, 50),
        longest_read_wait=read_waits[-1],
        write_wait=percentile(write_waits, 50),
        longest_write_wait=write_waits[-1],
        longest_read=max(hold.released - hold.granted for hold in reads) / 1e9,
        cpu=cpu / len(holds),
    )


def waits(holds: Sequence[HoldTimes]) -> list[float]:
    """Return the sorted waits in seconds."""
    return sorted((hold.granted - hold.requested) / 1e9 for hold in holds)


def table_of(rounds: Samples, scale: Scale, hold: float, turns: dict[str, float]) -> Table:
    """Return the medians of all figures over the rounds, and the longest waits of all rounds."""
    rows, data, goals = [], {}, []
    for name, mine in rounds.items():
        middle = ReadersSample(*(spread(values).median for values in zip(*mine, strict=True)))
        over_read = spread([one.over_read for one in mine]).median
        worst = {
            "worst_write_wait": max(one.longest_write_wait for one in mine),
            "worst_read_wait": max(one.longest_read_wait for one in mine),
        }
        times = [
            *(middle.write_wait, middle.longest_write_wait, worst["worst_write_wait"]),
            *(middle.read_wait, middle.longest_read_wait, worst["worst_read_wait"]),
        ]
        row = [READ_WRITE[name], f"{over_read:.2f}" if hold else ""]
        row += [f"{middle.reads:,.0f}", f"{middle.writes:,.0f}"]
        row += [f"{wait * 1e3:,.2f}" for wait in times]
        rows.append([*row, f"{middle.cpu * 1e6:,.0f}"])
        data[name] = middle._asdict() | worst | {"over_read": over_read}
        text = f"{READ_WRITE[name]}: longest wait of the writer / longest read".replace("**", "")
        if hold and name in WITH_GOAL:
            goals.append(Goal(text, over_read, MAX_WAIT))
        if hold and name in WITH_TURN_GOAL:
            over = [one.longest_write_wait / (one.longest_read + turns[name]) for one in mine]
            text = f"{text} and a turn of all without hold"
            goals.append(Goal(text, spread(over).median, MAX_WAIT_AND_TURN))
    title = f"readers: {scale.contenders} readers and 1 writer, {hold * 1e3:g} ms hold"
    notes = [
        "in every round no write overlapped another hold",
        f"a wait of {scale.contention_seconds:g} s or more lasted until the others had stopped",
    ]
    extent = {"readers": scale.contenders, "hold": hold}
    return Table(title, HEAD, rows, {"contestants": data, **extent}, goals, notes)
