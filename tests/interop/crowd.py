"""Several processes on one lock, and the proof that no two had it at once.

Law: every process writes the intervals in which it held, on the clock that all of them share.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.pace import pace

ROOT = Path(__file__).parents[2]
# Longer: LEASELOCK_INTEROP_SECONDS=60, as `make interop` does.
SECONDS = float(os.environ.get("LEASELOCK_INTEROP_SECONDS", "3"))
HOLD = 1
PATIENCE = 30.0


class Turn(NamedTuple):
    """One hold, in nanoseconds, and whose it was."""

    granted: int
    released: int
    token: int
    file: str


def end_of_contest(preparation: float) -> int:
    """When to stop, for processes that need *preparation* seconds to start on an idle machine."""
    return time.monotonic_ns() + round((SECONDS + preparation) * pace() * 1e9)


def contender(kind: str, url: str, name: str, end: int, file: Path) -> subprocess.Popen[bytes]:
    """Start a Python process."""
    job = [kind, url, name, str(end), str(HOLD), str(file)]
    return subprocess.Popen([sys.executable, "-m", "tests.interop.contender", *job], cwd=ROOT)


def turns(folder: Path) -> list[Turn]:
    """What was written, by the time of the grant."""
    return sorted(
        Turn(int(granted), int(released), int(token), file.name)
        for file in folder.iterdir()
        for granted, released, token in map(str.split, file.read_text().splitlines())
    )


def check_exclusion(found: list[Turn]) -> None:
    """No two at once."""
    for one, other in pairwise(found):
        assert other.granted > one.released, f"{one} still held when {other} was granted"


def check_tokens(found: list[Turn]) -> None:
    """Each token is greater than the one before it."""
    for one, other in pairwise(found):
        assert other.token > one.token, f"{other} was granted after {one}"


def counts(found: list[Turn]) -> dict[str, int]:
    """How often each had the lock."""
    return {name: sum(turn.file == name for turn in found) for name in {t.file for t in found}}


def finished(processes: list[subprocess.Popen[bytes]]) -> None:
    """All have ended well."""
    try:
        codes = [process.wait((SECONDS + PATIENCE) * pace()) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), codes


def longest_without(found: list[Turn], kind: str) -> float:
    """Seconds for which nobody of a kind had the lock, from its first turn until the very end."""
    ends = [turn.released for turn in found if turn.file.startswith(kind)]
    begins = [turn.granted for turn in found if turn.file.startswith(kind)]
    return max(b - a for a, b in zip(ends, [*begins[1:], found[-1].released], strict=True)) / 1e9
