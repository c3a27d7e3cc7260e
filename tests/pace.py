"""How fast this machine is at the moment: bounds in real time and leases are multiplied by it."""

from __future__ import annotations

import time

# What the probe takes on an idle ordinary machine.
REFERENCE = 0.05
ROUNDS = 3_500_000
# A run has its own load, which changes.
VALID_FOR = 20.0
MOST = 40.0

_measured = float("-inf"), 1.0


def pace() -> float:
    """How many times slower than an idle ordinary machine; 1 if it is not slower."""
    global _measured
    if time.monotonic() - _measured[0] > VALID_FOR:
        _measured = time.monotonic(), min(MOST, max(1.0, probe() / REFERENCE))
    return _measured[1]


def probe() -> float:
    """The seconds that a piece of work takes, long enough to meet a limit of the CPU time."""
    began = time.monotonic()
    for _ in range(ROUNDS):
        pass
    return time.monotonic() - began
