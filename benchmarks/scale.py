"""How long everything is measured: a full run takes a quarter of an hour, a quick one far less."""

from __future__ import annotations

from typing import NamedTuple


class Scale(NamedTuple):
    """The sizes of a run."""

    rounds: int
    """How many turns each contestant gets."""
    turn: float
    """Seconds of one turn of one thread."""
    crowd: int
    """How many processes contend on a file."""
    crowds: tuple[int, ...]
    """How many of them contend on a server."""
    crowd_rounds: int
    crowd_turn: float
    settling: float
    """Seconds until one that begins to wait has settled down."""
    wait: float
    """Seconds for which a waiter is watched."""
    starts: int
    """How often each command is started."""
    tasks: tuple[int, ...]
    """How many tasks have a lock each, or share ten."""
    threads: tuple[int, ...]
    """How many threads have a lock each."""
    waiters: tuple[int, ...]
    """How many tasks wait for one lock."""
    leases: tuple[int, ...]
    """How many leases one client renews."""
    lease: float
    """Seconds of those."""
    masters: tuple[int, ...]
    """How many masters each Redlock has."""


FULL = Scale(
    rounds=7,
    turn=0.04,
    crowd=8,
    crowds=(2, 8, 32),
    crowd_rounds=3,
    crowd_turn=0.6,
    settling=0.7,
    wait=3.0,
    starts=7,
    tasks=(100, 1000, 10_000),
    threads=(8, 64),
    waiters=(1, 10, 100, 1000, 10_000),
    leases=(1000, 10_000, 100_000),
    lease=30.0,
    masters=(3, 5),
)
QUICK = FULL._replace(
    rounds=3,
    turn=0.005,
    crowd=4,
    crowds=(2,),
    crowd_rounds=1,
    crowd_turn=0.1,
    settling=0.2,
    wait=0.2,
    starts=2,
    tasks=(1000,),
    threads=(16,),
    waiters=(10, 1000),
    leases=(1000,),
    lease=1.5,
    masters=(3,),
)
# To see that everything runs: the figures mean nothing.
TINY = QUICK._replace(
    rounds=2,
    turn=0.002,
    crowd=2,
    crowds=(2,),
    crowd_turn=0.05,
    settling=0.1,
    wait=0.1,
    starts=1,
    tasks=(20,),
    threads=(2,),
    waiters=(20, 40),
    leases=(20, 40),
    lease=0.9,
)
SCALES = {"full": FULL, "quick": QUICK, "tiny": TINY}
