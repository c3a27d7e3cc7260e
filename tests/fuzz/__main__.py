"""python -m tests.fuzz [--seconds S] [--seed N] [PROPERTY ...]

Every property over and over, each time with another seed, until the time is over. Whatever breaks
one is printed, and that property is left alone from then on.
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
from tests.fuzz.properties import PROPERTIES, Property

if TYPE_CHECKING:
    from collections.abc import Callable

# Times as many as a test tries, of each in turn.
ROUND = 5


def main() -> int:
    """Try, and print how much was tried; 1 when something was found."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=None, help="of the first round")
    parser.add_argument("only", nargs="*", metavar="PROPERTY", help="those with it in their names")
    words = parser.parse_args()
    seed = random.randrange(2**32) if words.seed is None else words.seed
    tried, broken = searched(collected(words.only), seed, time.monotonic() + words.seconds)
    for name, count in sorted(tried.items()):
        print(f"{count:9,}  {name}{'  BROKEN' if name in broken else ''}")
    print(f"{tried.total():9,}  examples in all, seeds from {seed}: {len(broken)} findings")
    return 1 if broken else 0


def collected(only: list[str]) -> list[Property]:
    """The properties of all tests."""
    for file in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.fuzz.{file.stem}")
    return [p for p in PROPERTIES if not only or any(word in name_of(p) for word in only)]


def name_of(one: Property) -> str:
    """How it is called where it stands."""
    return f"{one.check.__module__.removeprefix('tests.fuzz.')}.{one.check.__name__}"


def searched(properties: list[Property], seed: int, until: float) -> tuple[Counter[str], set[str]]:
    """How many examples each was given until then, and which of them broke."""
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
    """The check, of which each call counts."""

    @functools.wraps(check)
    def counting(**inputs: Any) -> None:
        tried[name] += 1
        check(**inputs)

    return counting


if __name__ == "__main__":
    sys.exit(main())
