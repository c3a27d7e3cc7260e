"""python -m verification.fuzz [--seconds S] [--seed N] [PROPERTY ...]

Tests every property repeatedly, with a new seed each time, until the time is over. An input that
breaks a property is printed, and that property is not tested again.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import random
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
from verification.fuzz.properties import PROPERTIES, Property

if TYPE_CHECKING:
    from collections.abc import Callable

# Examples in each round, as a multiple of those in a test.
ROUND = 5


def main() -> int:
    """Search, and print the numbers of examples; return 1 if a property was broken."""
    parser = argparse.ArgumentParser(prog="python -m verification.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("only", nargs="*", metavar="PROPERTY", help="those with it in their names")
    options = parser.parse_args()
    seed = random.randrange(2**32) if options.seed is None else options.seed
    tried, broken = searched(collected(options.only), seed, time.monotonic() + options.seconds)
    for name, count in sorted(tried.items()):
        print(f"{count:9,}  {name}{'  BROKEN' if name in broken else ''}")
    print(f"{tried.total():9,}  examples in all, seeds from {seed}: {len(broken)} findings")
    return 1 if broken else 0


def collected(only: list[str]) -> list[Property]:
    """Return the properties of all test modules."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"verification.fuzz.{file.stem}")
    return [p for p in PROPERTIES if not only or any(word in name_of(p) for word in only)]


def name_of(one: Property) -> str:
    """Return the property's module and name."""
    return f"{one.check.__module__.removeprefix('verification.fuzz.')}.{one.check.__name__}"


def searched(properties: list[Property], seed: int, until: float) -> tuple[Counter[str], set[str]]:
    """Return the number of examples of each property, and the broken properties."""
    tried: Counter[str] = Counter()
    broken: set[str] = set()
    while time.monotonic() < until and len(broken) < len(properties):
        for one in properties:
            name = name_of(one)
            if name in broken or time.monotonic() >= until:
                continue
            counting = one._replace(check=counted(one.check, name, tried))
            try:
                hypothesis.seed(seed)(counting.searched(ROUND * one.examples))()
            except Exception:
                broken.add(name)
                print(f"{name}, seed {seed}:", flush=True)
                traceback.print_exc()
        seed += 1
    return tried, broken


def counted(check: Callable[..., None], name: str, tried: Counter[str]) -> Callable[..., None]:
    """Return the check with its calls counted."""

    @functools.wraps(check)
    def counting(**inputs: Any) -> None:
        tried[name] += 1
        check(**inputs)

    return counting


if __name__ == "__main__":
    sys.exit(main())
