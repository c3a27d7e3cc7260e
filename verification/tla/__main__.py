"""Check the models with TLC: `python -m verification.tla`.

Without options: the small constants to the end, each planted flaw, and some runs of the simulator.
`--long` adds the large ones, each as far as `--seconds` goes.
"""

from __future__ import annotations

import argparse
import sys
import time

from verification.tla import tlc
from verification.tla.checks import CHECKS, THREE, TRACES, Trace

BATCH = 100


def main() -> int:
    """Check, and report each check in a line of a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", help="only checks whose name begins so; `traces`, `traces, document`"
    )
    parser.add_argument("--long", action="store_true", help="the large ones, too")
    parser.add_argument("--seconds", type=float, default=600.0, help="for each at most")
    parser.add_argument("--traces", type=int, default=60, help="how many runs of the simulator")
    parser.add_argument("--first", type=int, default=20_000, help="the seed of the first")
    options = parser.parse_args()
    try:
        tlc.jar()
    except tlc.NoTlc as error:
        print(f"models: {error}", file=sys.stderr)
        return 2
    wanted = tuple(options.names) or ("",)
    failed = 0
    print("| check | distinct states | depth | seconds | result |\n|---|---|---|---|---|")
    for check in (*CHECKS, *THREE):
        if check.name.startswith(wanted) and (options.long or not check.long):
            began = time.monotonic()
            result = tlc.check(check, options.seconds)
            good = as_expected(check.violated, check.complete, result)
            failed += not good
            text = outcome(result) + ("" if good else " **not as expected**")
            spent = time.monotonic() - began
            row = f"| {check.name} | {result.states:,} | {result.depth} | {spent:.0f} | {text} |"
            print(row, flush=True)
    for name, what in TRACES.items():
        if f"traces, {name}".startswith(wanted):
            print(f"runs of the code, {name}:", flush=True)
            failed += traces(what, options.first, options.traces, options.seconds)
    return 1 if failed else 0


def as_expected(violated: tuple[str, ...], complete: bool, result: tlc.Result) -> bool:
    """Whether TLC found what it must find, and nothing else."""
    if violated:
        return result.violated in violated
    return not result.violated and (result.finished or not complete)


def outcome(result: tlc.Result) -> str:
    """The result in words."""
    if result.violated:
        return f"`{result.violated}` violated"
    return "complete, no error" if result.finished else "not complete, no error"


def traces(what: Trace, first: int, count: int, seconds: float) -> int:
    """Check runs of the simulator; return how many are refused."""
    began, all_refused = time.monotonic(), 0
    for start in range(first, first + count, BATCH):
        seeds = range(start, min(start + BATCH, first + count))
        refused, result = tlc.refused(what, [what.events(seed) for seed in seeds], seconds)
        all_refused += len(refused) + bool(result.violated)
        for index in refused:
            print(f"seed {seeds[index]} is no behaviour of the model")
        if result.violated:
            print(f"an invariant is violated: {result.violated}")
        done, spent = seeds.stop - first, time.monotonic() - began
        print(f"{done - all_refused} of {done} runs accepted in {spent:.0f} s", flush=True)
    return all_refused


if __name__ == "__main__":
    raise SystemExit(main())
