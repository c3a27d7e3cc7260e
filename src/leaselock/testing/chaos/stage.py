"""What a storm is played on: a store, what can befall it, and what it promises then.

Law: where `exclusive` is said, a stage has no fault that its store does not promise to survive, so
every overlap is a bug. Where it is not, overlaps are counted and must have been fenced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Fault = Callable[[random.Random], None]


def nothing() -> None:
    """Nothing has to be done for calm."""


class Stage(NamedTuple):
    """A store to play on. *idle* is how long it may stay idle, beside the lease and a freeze."""

    name: str
    url: str
    faults: Mapping[str, Fault] = {}
    idle: float = 3.0
    exclusive: bool = True
    # From then on nothing befalls it any more.
    calm: Callable[[], None] = nothing
    # What the workers find in their environment, beside what is there.
    env: Mapping[str, str] = {}
    # What each pair of them, one of each colour, is started by: such as into another network.
    entries: Sequence[Sequence[str]] = ((),)
