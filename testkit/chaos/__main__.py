"""Kill and freeze workers on a store for tests, and check their records.

    python -m testkit.chaos [URL] [--seconds 60] [--seed 7] [--json] [--picture chaos.png]

The locks are named `chaos 0` to `chaos 2`. Without a URL a temporary file is the store. The exit
code is 1 if a guarantee was broken.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

from testkit.chaos.report import figures, markdown
from testkit.chaos.run import run_with_progress
from testkit.chaos.target import Target
from testkit.chaos.timeline import draw, require_matplotlib


def main(arguments: list[str]) -> int:
    """Run the workers, and print the result."""
    parser = argparse.ArgumentParser(
        prog="python -m testkit.chaos", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("store", nargs="?", metavar="URL", help="a store for tests")
    parser.add_argument("--seed", type=int, default=1, help="of the random faults (1)")
    parser.add_argument("--seconds", type=float, default=20.0, help="of faults (20)")
    parser.add_argument("--json", action="store_true", help="print figures instead of a table")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw them: .png or .svg")
    options = parser.parse_args(arguments)
    if (options.store or "").startswith("memory:"):
        parser.error("processes do not share locks in memory://: name another store")
    if options.picture:
        require_matplotlib()
    with tempfile.TemporaryDirectory(prefix="leaselock-chaos-") as folder:
        url = options.store or f"sqlite:///{folder}/locks.db"
        print(f"{options.seconds:g} s of faults; the locks are named 'chaos *'", file=sys.stderr)
        target = Target("given store" if options.store else "sqlite", url, idle=15.0)
        report = run_with_progress(target, options.seed, options.seconds, Path(folder) / "chaos")
    print(json.dumps(figures(report)) if options.json else markdown([report]))
    if options.picture:
        draw(report, options.picture)
    return 0 if report.ok else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
