"""Hash the trace of every seed of every scenario: the gate of a change that keeps the behaviour.

``python -m verification.simulation.traces --write build/traces.txt`` before the change, and
``python -m verification.simulation.traces --against build/traces.txt`` after it. A seed whose trace
differs took other steps; play it in both versions with `verification.simulation.seeds` to see where
it leaves the path.
"""

from __future__ import annotations

import argparse
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from hashlib import sha256
from itertools import repeat
from multiprocessing import get_context
from pathlib import Path

from verification.simulation.scenarios import KINDS, play


def digest(kind: str, seed: int) -> str:
    """A line: the scenario, the seed, the hash of its trace, and its violation if there is one."""
    outcome = play(kind, seed, traced=True)
    text = "\n".join([*outcome.trace, outcome.violation or ""])
    shown = f"\t{outcome.violation}" if outcome.violation else ""
    return f"{kind}\t{seed}\t{sha256(text.encode()).hexdigest()[:16]}{shown}"


def digests(kinds: list[str], seeds: int, jobs: int) -> list[str]:
    """The lines of that many seeds of each scenario."""
    lines: list[str] = []
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        for kind in kinds:
            lines += pool.map(digest, repeat(kind, seeds), range(seeds), chunksize=10)
    return lines


def differences(before: list[str], after: list[str]) -> list[str]:
    """The seeds of *after* whose trace is another one in *before*, or is missing there."""
    known = set(before)
    return [line for line in after if line not in known]


def main() -> int:
    """Write the hashes, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=300, help="of each scenario")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--store", choices=sorted(KINDS), action="append")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--write", type=Path, metavar="FILE")
    where.add_argument("--against", type=Path, metavar="FILE")
    options = parser.parse_args()
    kinds = options.store or sorted(KINDS)
    lines = digests(kinds, options.seeds, options.jobs)
    if options.write:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text("\n".join([*lines, ""]), "utf-8")
        print(f"{len(lines)} traces written to {options.write}")
        return 0
    differing = differences(options.against.read_text("utf-8").splitlines(), lines)
    print(*differing[:20], sep="\n")
    for kind, count in Counter(line.partition("\t")[0] for line in differing).items():
        print(f"{kind}: {count} of {options.seeds} traces differ")
    print(f"{len(lines) - len(differing)} of {len(lines)} traces are the same")
    return 1 if differing else 0


if __name__ == "__main__":
    raise SystemExit(main())
