"""Several processes contend for one lock, and a check that no two held it at once.

Every process writes the intervals of its holds, by the clock that all of them share.
"""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.servers.process import eventually

ROOT = Path(__file__).parents[2]
# How often each contender holds. More: LEASELOCK_INTEROP_TURNS=3000, as `make interop` does.
TURNS = int(os.environ.get("LEASELOCK_INTEROP_TURNS", "60"))
HOLD = 1
# It only bounds a failure.
TIMEOUT = 300.0


class Turn(NamedTuple):
    """One hold, in nanoseconds, and the file of its process."""

    granted: int
    released: int
    token: int
    file: str


def contender(kind: str, url: str, name: str, file: Path) -> subprocess.Popen[bytes]:
    """Start a Python process."""
    job = [kind, url, name, str(TURNS), str(HOLD), str(file)]
    return subprocess.Popen([sys.executable, "-m", "tests.interop.contender", *job], cwd=ROOT)


def all_ready(folder: Path, count: int) -> None:
    """Wait until that many contenders are about to acquire the lock, which is held until then."""
    eventually(lambda: len(list(folder.iterdir())) == count, TIMEOUT)


def turns(folder: Path) -> list[Turn]:
    """Read all holds, ordered by the time of the grant."""
    return sorted(
        Turn(int(granted), int(released), int(token), file.name)
        for file in folder.iterdir()
        for granted, released, token in map(str.split, file.read_text().splitlines())
    )


def check_exclusion(found: list[Turn]) -> None:
    """Check that no two holds overlap."""
    for one, other in pairwise(found):
        assert other.granted > one.released, f"{one} still held when {other} was granted"


def check_tokens(found: list[Turn]) -> None:
    """Check that tokens increase."""
    for one, other in pairwise(found):
        assert other.token > one.token, f"{other} was granted after {one}"


def counts(found: list[Turn]) -> dict[str, int]:
    """The number of holds of each process."""
    return {name: sum(turn.file == name for turn in found) for name in {t.file for t in found}}


def finished(processes: list[subprocess.Popen[bytes]]) -> None:
    """Wait for all processes, which must succeed."""
    try:
        codes = [process.wait(TIMEOUT) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(codes), codes


def longest_waits(found: list[Turn]) -> dict[str, float]:
    """The longest time in seconds that each process was without the lock between two holds."""
    return {file: longest_wait(found, file) for file in sorted(counts(found))}


def longest_wait(found: list[Turn], file: str) -> float:
    """The longest time in seconds between two holds of one process."""
    own = [turn for turn in found if turn.file == file]
    return max((b.granted - a.released for a, b in pairwise(own)), default=0) / 1e9


def longest_without(found: list[Turn], kind: str) -> int:
    """The most holds of others between two of a kind."""
    places = [place for place, turn in enumerate(found) if turn.file.startswith(kind)]
    return max(later - earlier for earlier, later in pairwise(places)) - 1
