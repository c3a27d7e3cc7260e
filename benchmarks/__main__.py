"""The command: which workloads, how thoroughly, and where the numbers go."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks import growth
from benchmarks.contestants import ALL, TITLES, absent
from benchmarks.machine import machine, versions
from benchmarks.scale import SCALES
from benchmarks.workloads import NAMES, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tables import Table

SCHEMA = 2


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure holdfast next to its peers."
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
        f"# holdfast, measured{rough}",
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
    page = Page()
    page.add(heading(options.scale))
    tables = measure(options.names or NAMES, options.scale, page)
    page.add(load_line(page.load, load()))
    text = json.dumps(document(tables, options.scale, page.load), indent=1) + "\n"
    if options.json:
        options.json.write_text(text)
    if options.into:
        publish(options.into, text, page)
    return 0


class Page:
    """What is printed, and kept for a file."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.load = load()

    def add(self, lines: Sequence[str]) -> None:
        """Print them, and keep them."""
        self.lines += lines
        print("\n".join(lines), flush=True)


def load() -> float:
    """How many processes want a processor, on the average of a minute."""
    return os.getloadavg()[0]


def load_line(before: float, after: float) -> list[str]:
    """What else the machine had to do."""
    return [f"load average before: {before:.1f}, at the end: {after:.1f}", ""]


def measure(names: Sequence[str], scale: str, page: Page) -> dict[str, list[Table]]:
    """All tables of all workloads, each printed as soon as it is there."""
    tables: dict[str, list[Table]] = {}
    for name in names:
        began = time.monotonic()
        tables[name] = workload(name)(SCALES[scale])
        for table in tables[name]:
            page.add(list(table.markdown()))
        if sys.stderr.isatty():
            print(f"{name}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    curves = growth.table_of(table for some in tables.values() for table in some)
    if curves.rows:
        tables["growth"] = [curves]
        page.add(list(curves.markdown()))
    return tables


def document(tables: dict[str, list[Table]], scale: str, before: float) -> dict[str, Any]:
    """All numbers, for programs."""
    results = {name: [table.plain() for table in made] for name, made in tables.items()}
    return {
        "schema": SCHEMA,
        "scale": scale,
        "machine": machine(),
        "load": [before, load()],
        "versions": versions(),
        "results": results,
    }


def publish(folder: Path, text: str, page: Page) -> None:
    """Write numbers, tables and charts."""
    from benchmarks.charts import draw

    folder.mkdir(parents=True, exist_ok=True)
    Path(folder, "results.json").write_text(text)
    Path(folder, "results.md").write_text("\n".join(page.lines))
    draw(json.loads(text), folder)


if __name__ == "__main__":
    sys.exit(main())
