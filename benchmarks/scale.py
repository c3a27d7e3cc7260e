"""The sizes of a run: a full run takes three quarters of an hour, a quick one far less."""

from __future__ import annotations

from typing import NamedTuple


class Scale(NamedTuple):
    """The sizes of a run."""

    rounds: int
    """Measurements of each contestant."""
    sample_seconds: float
    """Duration of one measurement with one thread."""
    contenders: int
    """Processes that contend on a file, or for permits, or read beside a writer."""
    contender_counts: tuple[int, ...]
    """Processes that contend on a server."""
    contention_rounds: int
    contention_seconds: float
    settle_seconds: float
    """Time for a new waiter to become idle."""
    watch_seconds: float
    """Time for which a waiter is observed."""
    starts: int
    """Starts of each command."""
    tasks: tuple[int, ...]
    """Tasks with a lock each, or with ten locks together."""
    threads: tuple[int, ...]
    """Threads with a lock each."""
    waiters: tuple[int, ...]
    """Tasks that wait for one lock."""
    leases: tuple[int, ...]
    """Leases that one client renews."""
    lease: float
    """Length of these leases in seconds."""
    masters: tuple[int, ...]
    """Masters of each Redlock."""
    idle: int
    """Names that are not used any more."""


FULL = Scale(
    rounds=7,
    sample_seconds=0.04,
    contenders=8,
    contender_counts=(2, 8, 32),
    contention_rounds=5,
    contention_seconds=0.6,
    settle_seconds=0.7,
    watch_seconds=3.0,
    starts=7,
    tasks=(100, 1000, 10_000),
    threads=(8, 64),
    waiters=(1, 10, 100, 1000, 10_000),
    leases=(1000, 10_000, 100_000),
    lease=30.0,
    masters=(3, 5),
    idle=300_000,
)
QUICK = FULL._replace(
    rounds=3,
    sample_seconds=0.005,
    contenders=4,
    contender_counts=(2,),
    contention_rounds=1,
    contention_seconds=0.1,
    settle_seconds=0.2,
    watch_seconds=0.2,
    starts=2,
    tasks=(1000,),
    threads=(16,),
    waiters=(10, 1000),
    leases=(1000,),
    lease=1.5,
    masters=(3,),
    idle=20_000,
)
# For the tests, which run every workload. The figures are meaningless.
TINY = QUICK._replace(
    rounds=2,
    sample_seconds=0.002,
    contenders=2,
    contender_counts=(2,),
    contention_seconds=0.05,
    settle_seconds=0.1,
    watch_seconds=0.1,
    starts=1,
    tasks=(20,),
    threads=(2,),
    waiters=(20, 40),
    leases=(20, 40),
    lease=0.9,
    idle=400,
)
SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}
