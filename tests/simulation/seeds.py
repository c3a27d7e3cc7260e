"""Play many seeds: ``python -m tests.simulation.seeds --seeds 20000 --jobs 2``.

A seed that fails prints its trace, and can be played alone: ``--first SEED --seeds 1``.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.simulation.story import Outcome, Story

CHUNK = 100
LAST_LINES = 60


def play(seed: int, traced: bool = False) -> Outcome:
    """One seed; an unexpected end of a process is a violation, too."""
    story = Story(seed, traced)
    return story.tell()


def play_chunk(first: int, count: int) -> tuple[int, int, int, list[int]]:
    """Some seeds: how many grants and steps, and which failed."""
    grants = steps = 0
    failed = []
    for seed in range(first, first + count):
        outcome = play(seed)
        grants += outcome.grants
        steps += outcome.steps
        if outcome.violation is not None:
            failed.append(seed)
    return count, grants, steps, failed


def report(seed: int) -> str:
    """The trace of a failing seed, for people."""
    outcome = play(seed, traced=True)
    lines = outcome.trace[-LAST_LINES:]
    head = f"seed {seed}: {outcome.violation}; the last {len(lines)} of {len(outcome.trace)} lines:"
    return "\n".join([head, *lines])


def main() -> int:
    """Play the seeds that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    began = time.monotonic()
    starts = range(options.first, options.first + options.seeds, CHUNK)
    last = options.first + options.seeds
    grants = steps = seeds = 0
    failed: list[int] = []
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        jobs = [pool.submit(play_chunk, start, min(CHUNK, last - start)) for start in starts]
        for job in jobs:
            count, more_grants, more_steps, more_failed = job.result()
            seeds, grants, steps = seeds + count, grants + more_grants, steps + more_steps
            failed += more_failed
    seconds = time.monotonic() - began
    print(f"{seeds} seeds, {grants} grants, {steps} steps in {seconds:.1f} s: {len(failed)} failed")
    if failed:
        print(report(failed[0]))
        print("failing seeds:", *failed[:20])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
