"""Several processes contend for one lock, and a check that no two held it at once.

Every process writes the intervals of its holds, by the clock that all of them share.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from testkit.servers.process import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).parents[2]
# How often each contender holds. More: LEASELOCK_INTEROP_TURNS=3000.
TURNS = int(os.environ.get("LEASELOCK_INTEROP_TURNS", "60"))
HOLD = 1
# The longest wait in seconds beside libraries in other languages that poll, for each of ours and
# for all of theirs together. In each second the lock is left free for 100 ms, and their pauses are
# random: up to 250 ms with redsync, 400 ms with node-redlock. All of four
# processes miss one such chance with a probability of 2 % and 10 %, and eight with less than 1e-7.
# A process of theirs that has released the lock takes it again at once, unless one of ours, which
# poll twenty times a second, does so in between: that takes 0.2 to 0.3 s on average, and took 1.6 s
# once in a hundred times.
LONGEST = 8.0
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
    return subprocess.Popen(
        [sys.executable, "-m", "verification.interop.contender", *job], cwd=ROOT
    )


def all_ready(folder: Path, count: int, processes: Sequence[subprocess.Popen[Any]] = ()) -> None:
    """Wait until that many contenders are about to acquire the lock, which is held until then."""

    def ready() -> bool:
        codes = [process.poll() for process in processes]
        assert not any(codes), codes
        return len(list(folder.iterdir())) == count

    eventually(ready, TIMEOUT)


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


@contextlib.contextmanager
def ended(processes: Sequence[subprocess.Popen[Any]]) -> Iterator[None]:
    """End the processes that have been started by then, even if the body fails."""
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def finished(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Wait for all processes, which must succeed."""
    with ended(processes):
        codes = [process.wait(TIMEOUT) for process in processes]
    assert not any(codes), codes


def longest_waits(found: list[Turn]) -> dict[str, float]:
    """The longest time in seconds that each process was without the lock between two holds."""
    return {file: longest_wait(found, file) for file in sorted(counts(found))}


def longest_wait(found: list[Turn], file: str) -> float:
    """The longest time in seconds between two holds of one process."""
    own = [turn for turn in found if turn.file == file]
    return max((b.granted - a.released for a, b in pairwise(own)), default=0) / 1e9


def longest_absence(found: list[Turn], kind: str) -> float:
    """The longest time in seconds without a hold of a kind, from the first hold to its last one."""
    own = [turn for turn in found if turn.file.startswith(kind)]
    return max(b.granted - a.released for a, b in pairwise([found[0], *own])) / 1e9


def longest_without(found: list[Turn], kind: str) -> int:
    """The most holds of others between two of a kind."""
    places = [place for place, turn in enumerate(found) if turn.file.startswith(kind)]
    return max(later - earlier for earlier, later in pairwise(places)) - 1
