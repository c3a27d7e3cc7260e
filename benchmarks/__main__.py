"""The command line: select workloads, the size of the run and where to write the results."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks import growth
from benchmarks.contestants import ALL, TITLES, absent
from benchmarks.machine import machine, versions
from benchmarks.scale import SCALES
from benchmarks.tables import Table
from benchmarks.workloads import NAMES, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA = 3
VERDICTS = {True: "met", False: "**not met**"}


def parser() -> argparse.ArgumentParser:
    """Return the argument parser."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure leaselock beside other libraries."
    )
    made.add_argument(
        "names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all"
    )
    sizes = made.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full")
    sizes.add_argument(
        "--tiny",
        action="store_const",
        dest="scale",
        const="tiny",
        help="to test that it runs; meaningless figures",
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    made.add_argument(
        "--into", type=Path, metavar="FOLDER", help="write numbers, charts and pages into FOLDER"
    )
    return made


def heading(scale: str) -> list[str]:
    """Return the lines about the machine and the versions."""
    where = machine()
    gone = {TITLES[name]: why for name in ALL if (why := absent(name))}
    rough = "" if scale == "full" else f" ({scale}: rough figures)"
    return [
        f"# leaselock: benchmark results{rough}",
        "",
        "Medians, with quartiles in brackets, of measurements that alternate in random order.",
        "",
        f"* machine: {where['processor']}, {where['cores']} cores, {where['system']}",
        f"* versions: {where['python']}, SQLite {where['sqlite']}, "
        + ", ".join(f"{name} {version}" for name, version in versions().items()),
        *(f"* not measured: {title}: {why}" for title, why in gone.items()),
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print Markdown, and write the files that were requested."""
    made = parser()
    options = made.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        wrong = ", ".join(sorted(unknown))
        made.error(f"no workload is called {wrong}; the workloads are {', '.join(NAMES)}")
    run = Run(options.scale, options.into)
    run.print_lines(heading(options.scale))
    for name in options.names or NAMES:
        run.measure(name)
    run.end()
    if options.json:
        options.json.write_text(run.document())
    return 1 if run.failed else 0


class Run:
    """The results of a run, printed as they arrive and written to a folder if one is given."""

    def __init__(self, scale: str, folder: Path | None) -> None:
        self.scale = scale
        self.folder = folder
        self.tables: dict[str, list[Table]] = {}
        self.failed: list[str] = []
        self.load = [load()]
        self.began = time.monotonic()

    def print_lines(self, lines: Sequence[str]) -> None:
        """Print lines."""
        print("\n".join(lines), flush=True)

    def measure(self, name: str) -> None:
        """Measure a workload, and write all results so far; a failure is reported as a result."""
        began = time.monotonic()
        tables: list[Table] = []
        try:
            # A workload that yields its tables keeps those before the failure.
            tables.extend(workload(name)(SCALES[self.scale]))
        except Exception as error:
            traceback.print_exc()
            self.failed.append(name)
            tables.append(failure(name, error))
        self.add(name, tables)
        self.load.append(load())
        self.print_lines([f"({name} took {time.monotonic() - began:.0f} s)", ""])
        self.write()

    def add(self, name: str, tables: list[Table]) -> None:
        """Add and print the tables of a workload."""
        self.tables[name] = tables
        for table in tables:
            self.print_lines(list(table.markdown()))

    def end(self) -> None:
        """Add the tables over all workloads, write the results and draw the charts."""
        curves = growth.table_of(table for some in self.tables.values() for table in some)
        if curves.rows:
            self.add("growth", [curves])
        self.add("goals", [verdicts(self.tables)])
        took = (time.monotonic() - self.began) / 60
        self.print_lines([f"load average: {min(self.load):.1f} to {max(self.load):.1f}", ""])
        self.print_lines([f"total: {took:.1f} minutes", ""])
        if self.failed:
            self.print_lines([f"**failed: {', '.join(self.failed)}**", ""])
        self.write()
        if self.folder:
            from benchmarks import charts, page

            document = json.loads(self.document())
            charts.draw(document, self.folder)
            page.write(document, self.folder)

    def write(self) -> None:
        """Write results.json."""
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            Path(self.folder, "results.json").write_text(self.document())

    def document(self) -> str:
        """Return all numbers as JSON."""
        results = {name: [one.plain() for one in some] for name, some in self.tables.items()}
        context = {"machine": machine(), "load": self.load, "versions": versions()}
        document = {"schema": SCHEMA, "scale": self.scale, **context, "results": results}
        return json.dumps(document, indent=1) + "\n"


def failure(name: str, error: Exception) -> Table:
    """Return the table of a workload that failed."""
    first = (str(error).splitlines() or [""])[0]
    rows = [[type(error).__name__, first]]
    return Table(f"{name}: failed", ["error", "message"], rows, {"failed": type(error).__name__})


def verdicts(tables: Mapping[str, Sequence[Table]]) -> Table:
    """Return a table of all goals."""
    goals = [(table, goal) for some in tables.values() for table in some for goal in table.goals]
    rows = [
        [table.title, goal.text, f"{goal.most:.3g}", f"{goal.measured:.3g}", VERDICTS[goal.met]]
        for table, goal in goals
    ]
    met = sum(goal.met for _, goal in goals)
    title = f"goals: {met} of {len(goals)} are met; each is an upper limit"
    return Table(title, ["workload", "goal", "at most", "measured", ""], rows, {})


def load() -> float:
    """Return the load average of the last minute."""
    return os.getloadavg()[0]


if __name__ == "__main__":
    sys.exit(main())
