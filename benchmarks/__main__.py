"""The command: which workloads, how thoroughly, and where the numbers go."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.machine import machine, versions
from benchmarks.scale import FULL, QUICK
from benchmarks.workloads import NAMES, workload

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.tables import Table

SCHEMA = 1


def parser() -> argparse.ArgumentParser:
    """What can be asked for."""
    made = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Measure holdfast next to its peers."
    )
    made.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; else all")
    made.add_argument("--quick", action="store_true", help="seconds instead of minutes; rough")
    made.add_argument("--json", type=Path, metavar="FILE", help="write the numbers there as well")
    return made


def heading(quick: bool) -> list[str]:
    """Where and with what it was measured."""
    where = machine()
    return [
        "# holdfast, measured" + (" (quick: rough figures)" if quick else ""),
        "",
        "Medians, and in brackets the quarter points, of turns taken in random order.",
        "",
        f"* machine: {where['processor']}, {where['cores']} cores, {where['system']}",
        f"* versions: {where['python']}, SQLite {where['sqlite']}, "
        + ", ".join(f"{name} {version}" for name, version in versions().items()),
        "",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print as Markdown, and write JSON if it is wanted."""
    made = parser()
    options = made.parse_args(arguments)
    if unknown := set(options.names) - set(NAMES):
        made.error(
            f"no workload is called {', '.join(sorted(unknown))}: there are {', '.join(NAMES)}"
        )
    scale = QUICK if options.quick else FULL
    print("\n".join(heading(options.quick)), flush=True)
    tables: dict[str, list[Table]] = {}
    for name in options.names or NAMES:
        if sys.stderr.isatty():
            print(f"measuring: {name} ...", file=sys.stderr, flush=True)
        tables[name] = workload(name)(scale)
        for table in tables[name]:
            print("\n".join(table.markdown()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(document(tables, options.quick), indent=2) + "\n")
    return 0


def document(tables: dict[str, list[Table]], quick: bool) -> dict[str, Any]:
    """All numbers, for programs."""
    results = {name: [table.plain() for table in made] for name, made in tables.items()}
    return {
        "schema": SCHEMA,
        "quick": quick,
        "machine": machine(),
        "versions": versions(),
        "results": results,
    }


if __name__ == "__main__":
    sys.exit(main())
