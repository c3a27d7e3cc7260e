"""The command: which workloads, how thoroughly, and where the numbers go."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
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

SCHEMA = 2
VERDICTS = {True: "met", False: "**not met**"}


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure leaselock next to its peers."
    )
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; else all")
    sizes = made.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", dest="scale", const="quick", default="full")
    sizes.add_argument(
        "--tiny", action="store_const", dest="scale", const="tiny", help="only to see that it runs"
    )
    made.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    made.add_argument(
        "--into", type=Path, metavar="FOLDER", help="write numbers, tables and charts there"
    )
    return made


def heading(scale: str) -> list[str]:
    """Where and with what it was measured."""
    where = machine()
    gone = {TITLES[name]: why for name in ALL if (why := absent(name))}
    rough = "" if scale == "full" else f" ({scale}: rough figures)"
    return [
        f"# leaselock, measured{rough}",
        "",
        "Medians, and in brackets the quarter points, of turns taken in random order.",
        "",
        f"* machine: {where['processor']}, {where['cores']} cores, {where['system']}",
        f"* versions: {where['python']}, SQLite {where['sqlite']}, "
        + ", ".join(f"{name} {version}" for name, version in versions().items()),
        *(f"* not here: {title}: {why}" for title, why in gone.items()),
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print as Markdown, and write it if that is wanted."""
    made = parser()
    options = made.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        made.error(
            f"no workload is called {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}"
        )
    run = Run(options.scale, options.into)
    run.tell(heading(options.scale))
    for name in options.names or NAMES:
        run.measure(name)
    run.end()
    if options.json:
        options.json.write_text(run.document())
    return 0


class Run:
    """What is found, printed as soon as it is there, and kept in a folder if that is wanted."""

    def __init__(self, scale: str, folder: Path | None) -> None:
        self.scale = scale
        self.folder = folder
        self.lines: list[str] = []
        self.tables: dict[str, list[Table]] = {}
        self.load = [load()]
        self.began = time.monotonic()

    def tell(self, lines: Sequence[str]) -> None:
        """Print them, and keep them."""
        self.lines += lines
        print("\n".join(lines), flush=True)

    def measure(self, name: str) -> None:
        """All tables of a workload. A run takes long: what it has found so far is written."""
        began = time.monotonic()
        self.found(name, workload(name)(SCALES[self.scale]))
        self.load.append(load())
        self.tell([f"({name} took {time.monotonic() - began:.0f} s)", ""])
        self.write()

    def found(self, name: str, tables: list[Table]) -> None:
        """They belong to the run."""
        self.tables[name] = tables
        for table in tables:
            self.tell(list(table.markdown()))

    def end(self) -> None:
        """What is to be seen of all workloads together, and charts."""
        curves = growth.table_of(table for some in self.tables.values() for table in some)
        if curves.rows:
            self.found("growth", [curves])
        self.found("goals", [verdicts(self.tables)])
        took = (time.monotonic() - self.began) / 60
        self.tell([f"load average: {min(self.load):.1f} to {max(self.load):.1f}", ""])
        self.tell([f"all in {took:.1f} minutes", ""])
        self.write()
        if self.folder:
            from benchmarks.charts import draw

            draw(json.loads(self.document()), self.folder)

    def write(self) -> None:
        """Numbers and tables."""
        if self.folder:
            self.folder.mkdir(parents=True, exist_ok=True)
            Path(self.folder, "results.json").write_text(self.document())
            Path(self.folder, "results.md").write_text("\n".join(self.lines))

    def document(self) -> str:
        """All numbers, for programs."""
        results = {name: [one.plain() for one in some] for name, some in self.tables.items()}
        about = {"machine": machine(), "load": self.load, "versions": versions()}
        words = {"schema": SCHEMA, "scale": self.scale, **about, "results": results}
        return json.dumps(words, indent=1) + "\n"


def verdicts(found: Mapping[str, Sequence[Table]]) -> Table:
    """Every goal of a run, in one table."""
    goals = [(table, goal) for some in found.values() for table in some for goal in table.goals]
    rows = [
        [table.title, goal.text, f"{goal.most:.3g}", f"{goal.measured:.3g}", VERDICTS[goal.met]]
        for table, goal in goals
    ]
    met = sum(goal.met for _, goal in goals)
    title = f"goals: {met} of {len(goals)} are met; each is the most that is asked"
    return Table(title, ["workload", "goal", "at most", "measured", ""], rows, {})


def load() -> float:
    """How many processes want a processor, on the average of a minute."""
    return os.getloadavg()[0]


if __name__ == "__main__":
    sys.exit(main())
