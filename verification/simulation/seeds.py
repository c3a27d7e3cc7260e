"""Play many seeds, on all stores.

``python -m verification.simulation.seeds --seeds 20000 --jobs 2`` divides them among the stores
(``--store redis`` for one alone), fewer for slow ones. Failures are printed with their store and
seed, the first one with its trace; ``--first SEED --seeds 1`` plays one again.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple

from verification.simulation import scenarios
from verification.simulation.scenario import LONG_ONES
from verification.simulation.scenarios import KINDS, SHOWN

CHUNK = 50
# Weights of the stores, so that a long run spends about the same time on each: a scenario on a
# table in memory costs a third of the usual time, one with long scripts at each step five times.
USUAL = 6
SHARES = {"memory": 16, "sqlite": 16, "redis modes": 2}
SHARES |= {"redlock": 1, "redlock survivable loss": 1}
MOST_SHOWN = 20
# The interval of progress reports, in seconds.
EVERY = 15.0


class Played(NamedTuple):
    """The results of some seeds of one scenario."""

    kind: str
    seeds: int
    grants: int
    steps: int
    failed: tuple[int, ...]
    seconds: float


def play_chunk(kind: str, first: int, count: int) -> Played:
    """Play some seeds; an unexpected end of a process is a violation, too."""
    began = time.process_time()
    outcomes = [scenarios.play(kind, seed) for seed in range(first, first + count)]
    failed = tuple(outcome.seed for outcome in outcomes if outcome.violation is not None)
    grants, steps = sum(o.grants for o in outcomes), sum(o.steps for o in outcomes)
    return Played(kind, count, grants, steps, failed, time.process_time() - began)


def must_pass(kind: str, first: int, count: int, grants: int = 3) -> None:
    """Play some seeds, and fail if one has a violation, or if they have no more than *grants* on
    average.
    """
    played = play_chunk(kind, first, count)
    assert not played.failed, scenarios.report(kind, played.failed[0])
    assert played.grants > grants * count, "the scenarios are empty"


def chunks(kinds: list[str], first: int, seeds: int) -> list[tuple[str, int, int]]:
    """Divide the seeds among the scenarios, in small pieces."""
    work = []
    for kind, mine in shares(kinds, seeds).items():
        starts = range(first, first + mine, CHUNK)
        work += [(kind, start, min(CHUNK, first + mine - start)) for start in starts]
    # Alternate between the scenarios, so that a run that is stopped early has covered all.
    return sorted(work, key=lambda piece: piece[1])


def shares(kinds: list[str], seeds: int) -> dict[str, int]:
    """The number of seeds of each scenario."""
    weights = {kind: SHARES.get(kind, USUAL) for kind in kinds}
    whole = sum(weights.values())
    mine = {kind: seeds * weight // whole for kind, weight in weights.items()}
    mine[kinds[0]] += seeds - sum(mine.values())
    return mine


def play_all(work: list[tuple[str, int, int]], jobs: int) -> dict[str, Played]:
    """Play all pieces, and report progress; return the results of each scenario."""
    found: dict[str, list[Played]] = defaultdict(list)
    progress = Progress(sum(count for _, _, count in work))
    # A scenario leaves few reference cycles: at the default threshold the collector costs 10 %.
    seldom = partial(gc.set_threshold, 50_000)
    with ProcessPoolExecutor(jobs, get_context("spawn"), seldom) as pool:
        for job in as_completed([pool.submit(play_chunk, *piece) for piece in work]):
            played = job.result()
            found[played.kind].append(played)
            progress.add(played)
    return {kind: total(kind, parts) for kind, parts in sorted(found.items())}


class Progress:
    """The progress reports of a run."""

    def __init__(self, seeds: int) -> None:
        self.seeds = seeds
        self.began = self.reported = time.monotonic()
        self.parts = [Played("", 0, 0, 0, (), 0.0)]

    def add(self, played: Played) -> None:
        """Add a piece; print failing seeds at once, the totals at intervals."""
        for seed in played.failed:
            print(f"{played.kind}: seed {seed} failed", flush=True)
        so_far = total("", [*self.parts, played])
        self.parts = [so_far]
        if time.monotonic() - self.reported < EVERY:
            return
        self.reported = time.monotonic()
        left = (self.reported - self.began) * (self.seeds / so_far.seeds - 1.0)
        print(
            f"{self.reported - self.began:.0f} s: {so_far.seeds:,} of {self.seeds:,} seeds, "
            f"{so_far.grants:,} grants, {so_far.steps:,} steps, {so_far.seconds:,.0f} s of CPU, "
            f"{len(so_far.failed)} failed; {left:.0f} s to go",
            flush=True,
        )


def total(kind: str, parts: list[Played]) -> Played:
    """Add up some results."""
    failed = sorted(seed for part in parts for seed in part.failed)
    seeds, grants = sum(part.seeds for part in parts), sum(part.grants for part in parts)
    steps, seconds = sum(part.steps for part in parts), sum(part.seconds for part in parts)
    return Played(kind, seeds, grants, steps, tuple(failed), seconds)


def line(played: Played) -> str:
    """A line of the table."""
    numbers = (played.seeds, played.grants, played.steps, played.seconds, len(played.failed))
    return "{:<24} {:>9} {:>10} {:>12} {:>9.1f} {:>7}".format(played.kind, *numbers)


def main() -> int:
    """Play the seeds given by the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20000)
    # Earlier seeds are all long, and played by the tests.
    parser.add_argument("--first", type=int, default=LONG_ONES)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--store", choices=sorted(KINDS | SHOWN), action="append")
    options = parser.parse_args()
    began = time.monotonic()
    kinds = options.store or sorted(KINDS)
    found = play_all(chunks(kinds, options.first, options.seeds), options.jobs)
    print(f"{'store':<24} {'seeds':>9} {'grants':>10} {'steps':>12} {'CPU s':>9} {'failed':>7}")
    for played in found.values():
        print(line(played))
    print(line(total("all", list(found.values()))))
    print(f"{time.monotonic() - began:.1f} s of wall time, {options.jobs} processes")
    failed = [(played.kind, seed) for played in found.values() for seed in played.failed]
    if failed:
        print(scenarios.report(*failed[0]))
        print("failing seeds:", *(f"{kind}:{seed}" for kind, seed in failed[:MOST_SHOWN]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
