"""By how much a plain timer is late on this machine, as another process measures it."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple, Self

# Sleeps of a millisecond; each that takes longer is reported: its end, and by how much.
PROGRAM = """
import time
before = time.monotonic()
while True:
    time.sleep(0.001)
    now = time.monotonic()
    late = now - before - 0.001
    if late > 0.001:
        print(now, late, flush=True)
    before = now
"""


class Delay(NamedTuple):
    """A sleep that took too long."""

    ended: float
    """When it ended, on the monotonic clock."""
    late: float
    """By how many seconds."""


class Timer:
    """Measures in another process, for the length of a body."""

    def __enter__(self) -> Self:
        # Not a pipe, which would be full after some seconds.
        self.file = tempfile.NamedTemporaryFile("w", prefix="timer-")
        command = [sys.executable, "-S", "-c", PROGRAM]
        self.process = subprocess.Popen(command, stdout=self.file)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        self.delays = self.measured()
        self.file.close()

    def measured(self) -> list[Delay]:
        """The delays so far. The last line may be incomplete."""
        *lines, _ = Path(self.file.name).read_text().split("\n")
        return [Delay(*map(float, line.split())) for line in lines]


def late(delays: list[Delay], began: float, ended: float) -> float:
    """By how many seconds the timer was late in an interval, in all."""
    parts = (min(ended, one.ended) - max(began, one.ended - one.late) for one in delays)
    return sum(part for part in parts if part > 0)
