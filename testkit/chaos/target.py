"""What a chaos run is directed at: a store, the faults that can hit it, and what it guarantees.

Invariant: a target with `exclusive` has no fault that its store does not promise to survive, so
every overlap is a bug. For other targets overlaps are counted, and must have been fenced.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

Fault = Callable[[random.Random], None]


def do_nothing() -> None:
    """The default for `restore`: the target has no faults that last."""


class Target(NamedTuple):
    """A store to test. *idle* is how long it may stay idle after the lease and a freeze."""

    name: str
    url: str
    faults: Mapping[str, Fault] = {}
    idle: float = 3.0
    exclusive: bool = True
    # Called after the last fault: removes those that last.
    restore: Callable[[], None] = do_nothing
    # Added to the environment of the workers.
    env: Mapping[str, str] = {}
    # The workers also read, and take permits, if the store has read/write locks and semaphores.
    shares: bool = False
    # A command prefix for each pair of workers, one of each kind: such as to enter a network.
    prefixes: Sequence[Sequence[str]] = ((),)
