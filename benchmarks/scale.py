"""How long everything is measured: a full run takes about two minutes, a quick one seconds."""

from __future__ import annotations

from typing import NamedTuple


class Scale(NamedTuple):
    """The sizes of a run."""

    rounds: int
    """How many turns each contestant gets."""
    turn: float
    """Seconds of one turn of one thread."""
    crowd: int
    """How many processes contend."""
    crowd_rounds: int
    crowd_turn: float
    settling: float
    """Seconds until one that begins to wait has settled down."""
    wait: float
    """Seconds for which a waiter is watched."""
    starts: int
    """How often each command is started."""


FULL = Scale(
    rounds=25,
    turn=0.04,
    crowd=8,
    crowd_rounds=5,
    crowd_turn=2.0,
    settling=0.7,
    wait=3.0,
    starts=30,
)
QUICK = Scale(
    rounds=3,
    turn=0.005,
    crowd=4,
    crowd_rounds=1,
    crowd_turn=0.15,
    settling=0.2,
    wait=0.2,
    starts=2,
)
