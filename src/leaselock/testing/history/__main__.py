"""`python -m leaselock.testing.history FOLDER`: exit 0 without violations, 1 with, 2 unreadable."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.record_format import CorruptHistory

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> int:
    """Check a folder of histories and print the verdict."""
    options = _parser().parse_args(arguments)
    try:
        history = History.read(options.folder)
    except (CorruptHistory, OSError) as error:
        print(f"history: {error}", file=sys.stderr)
        return 2
    verdict = check(history, _rules(options))
    print(verdict)
    return 0 if verdict.ok else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m leaselock.testing.history", description="Check recorded lock histories."
    )
    add = parser.add_argument
    add("folder", type=Path)
    add("--min-grants", type=int, default=1, metavar="N")
    add("--min-contention", type=float, default=0.0, metavar="PART")
    add("--ghost-bound", type=_nanoseconds, metavar="SECONDS", help="longest idle after a crash")
    add("--hand-over-bound", type=_nanoseconds, metavar="SECONDS", help="the same after a release")
    return parser


def _nanoseconds(seconds: str) -> int:
    return round(float(seconds) * 1_000_000_000)


def _rules(options: argparse.Namespace) -> Rules:
    return Rules(
        min_grants=options.min_grants,
        min_contention=options.min_contention,
        ghost_bound=options.ghost_bound,
        hand_over_bound=options.hand_over_bound,
    )


if __name__ == "__main__":
    sys.exit(main())
