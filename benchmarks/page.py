"""The figures of the pages, written from results.json: `python -m benchmarks.page FOLDER`.

A table stands between `<!-- measured: NAME -->` and `<!-- end -->`. No other text of the pages has
a figure of a benchmark, so a run replaces all of them, and `tests/test_documents.py` compares.
"""

from __future__ import annotations

import json
import re
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import READ_WRITE, SEMAPHORES, TITLES
from benchmarks.results import best, contention_of, pair_of, tables, tasks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

DOCS = Path(__file__).parents[1] / "docs"
PUBLISHED = DOCS / "benchmarks"
PAGES = (PUBLISHED / "README.md", DOCS / "how-to" / "choose-a-store.md")
MARKED = re.compile(r"(<!-- measured: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
Document = dict[str, Any]
Rows = list[list[str]]


def filled(page: str, document: Document) -> str:
    """Return the text of a page with the tables of these results."""

    def table(found: re.Match[str]) -> str:
        lines = "\n".join(TABLES[found[2]](document["results"], document))
        return f"{found[1]}\n{lines}\n\n{found[3]}"

    return MARKED.sub(table, page)


def write(document: Document, folder: Path) -> None:
    """Fill the pages, if the run is the published one; otherwise put copies into the folder."""
    for page in PAGES:
        target = page if folder.resolve() == PUBLISHED else folder / page.name
        target.write_text(filled(page.read_text("utf-8"), document), "utf-8")


def main(folder: str) -> None:
    """Write the tables of an earlier run."""
    write(json.loads(Path(folder, "results.json").read_text("utf-8")), Path(folder))


def _table(head: Sequence[str], rows: Rows) -> Iterator[str]:
    if not rows:
        yield "Not measured in this run."
        return
    for row in (head, ["---", *["--:"] * (len(head) - 1)], *rows):
        yield f"| {' | '.join(row)} |"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2g}"


def _best(values: Mapping[str, float], *, most: bool = False) -> str:
    found = best(values, most=most)
    return f"{_number(found[1])} ({TITLES[found[0]]})" if found else ""


def run(_results: Document, document: Document) -> Iterator[str]:
    """Say where and with which versions the run was made."""
    machine, versions = document["machine"], document["versions"]
    rough = "" if document["scale"] == "full" else f" A {document['scale']} run: rough figures."
    text = (
        f"{machine['processor']}, {machine['cores']} cores, {machine['system']}, "
        f"{machine['python']}, SQLite {machine['sqlite']}; load average "
        f"{min(document['load']):.1f} to {max(document['load']):.1f}.{rough} "
    )
    text += ", ".join(f"{name} {version}" for name, version in versions.items()) + "."
    yield from textwrap.wrap(text, 100, break_on_hyphens=False)


# --- the table that answers -----------------------------------------------------------------------

PAIRS = (
    ("Redis, threads", "redis", "bare-redis", ""),
    ("Redis, asyncio", "aio", "bare-redis", ""),
    ("SQLite", "leaselock", "sqlite", ""),
    ("ZooKeeper, one server", "zookeeper", "bare-zookeeper", "ZooKeeper, one"),
    ("PostgreSQL, `lease`", "sql-lease", "bare-sql-lease", "Postgres"),
    ("MariaDB, `lease`", "sql-lease", "bare-sql-lease", "MariaDB"),
    ("etcd", "etcd", "bare-etcd", ""),
)


def answer(results: Document, _: Document) -> Iterator[str]:
    """The three figures: a free lock, the longest wait, many tasks."""
    rows: Rows = []
    for title, ours, floor, group in PAIRS:
        if found := pair_of(results, ours, group):
            times = {name: one["seconds"]["median"] * 1e6 for name, one in found.items()}
            bare = _number(times[floor]) if floor in times else ""
            cells = [f"a free lock, {title}: µs", _number(times[ours]), _best(times), bare]
            rows.append(cells)
    if table := contention_of(results, hold=0.001):
        waits = {name: one["longest"] * 1e3 for name, one in table["contestants"].items()}
        ideal = min(one["ideal"] for one in table["contestants"].values()) * 1e3
        title = f"longest wait of {table['processes']} processes on Redis, 1 ms each: ms"
        rows.append([title, _number(waits["redis"]), _best(waits), _number(ideal)])
    if table := tasks_of(results, "tasks, a lock each"):
        rates = {name: one["rate"]["median"] for name, one in table["rates"].items()}
        title = f"{table['size']:,} tasks with a lock each on Redis: pairs/s"
        most = _best(rates, most=True)
        rows.append([title, _number(rates["aio"]), most, _number(rates["limit"])])
    return _table(["", "leaselock", "best other library", "floor"], rows)


# --- details --------------------------------------------------------------------------------------


def pairs(results: Document, _: Document) -> Iterator[str]:
    """A free lock on each store, with all libraries."""
    rows: Rows = []
    for table in tables(results, "pair", "zookeeper", "sql", "documents"):
        if " pair: " not in f" {table['title']}" or "contestants" not in table:
            continue
        store = table["title"].removeprefix("**leaselock**, ").partition("pair:")[0].strip(" ,")
        store = store or "one machine"
        times = {name: one["seconds"]["median"] * 1e6 for name, one in table["contestants"].items()}
        for name in sorted(times, key=times.__getitem__):
            rows.append([store, TITLES.get(name, name), _number(times[name])])
            store = ""
    return _table(["store", "", "µs"], rows)


def stores(results: Document, _: Document) -> Iterator[str]:
    """A free lock of leaselock on all kinds of stores, as multiples of Redis."""
    found = tables(results, "stores")
    rows = [
        [name, _number(one["seconds"]["median"] * 1e6), f"{one['ratio']['median']:.1f}"]
        for table in found
        for name, one in table["contestants"].items()
    ]
    return _table(["store", "acquire and release, µs", "x Redis"], rows)


def network(results: Document, _: Document) -> Iterator[str]:
    """A free lock and a hand-off on each server, by the way to it."""
    rows: Rows = []
    for table in tables(results, "network"):
        for store, ways in table["stores"].items():
            cells = [
                f"{one['pair'] * 1e3:.1f}; {one['handoff'] * 1e3:.1f}" if one else ""
                for one in (ways.get(way) for way in table["ways"])
            ]
            rows.append([store, *cells])
        return _table(["a free lock; a hand-off, ms", *table["ways"]], rows)
    return stores(results, {})


def handoffs(results: Document, _: Document) -> Iterator[str]:
    """How often a lock without hold time moves to another process."""
    table = contention_of(results, hold=0.0)
    rows: Rows = []
    if table:
        found = table["contestants"]
        for name in sorted(found, key=lambda name: -found[name]["transfers"]):
            one = found[name]
            cells = [f"{one['transfers']:,.0f}", f"{one['rate']:,.0f}"]
            rows.append([TITLES[name], *cells, _number(one["longest"] * 1e3)])
    return _table(
        ["", "moves to another process, per s", "is taken, per s", "longest wait, ms"], rows
    )


def each(results: Document, _: Document) -> Iterator[str]:
    """The rates of many tasks and threads of one process."""
    columns = [
        table
        for table in tables(results, "redis_each")
        if "rates" in table and "tasks on" not in table["kind"]
    ]
    names = dict.fromkeys(name for table in columns for name in table["rates"])
    titles = {name: TITLES.get(name, "the server's limit, leaselock's scripts") for name in names}
    names.pop("redis-benchmark", None)  # It acquires, and releases nothing.
    rates = [{n: one["rate"]["median"] for n, one in table["rates"].items()} for table in columns]
    rows = [
        [titles[name], *(f"{one[name]:,.0f}" if name in one else "" for one in rates)]
        for name in names
    ]
    head = [f"{table['size']:,} {table['kind'].partition(',')[0]}" for table in columns]
    return _table(["pairs/s", *head], rows)


def wake_ups(results: Document, _: Document) -> Iterator[str]:
    """From a release to the next grant in a database."""
    found = [table for table in tables(results, "sql") if "wake-up" in table["title"]]
    rows = [
        [
            f"`{protocol}`",
            *(
                f"{table[protocol]['median'] * 1e3:.1f}; {table[protocol]['p99'] * 1e3:.1f}"
                for table in found
            ),
        ]
        for protocol in ("lease", "row", "advisory")
        if found
    ]
    return _table(
        ["ms: median; 99th percentile", *(table["title"].partition(",")[0] for table in found)],
        rows,
    )


def shared(results: Document, _: Document) -> Iterator[str]:
    """Readers beside a writer, and permits, with holds of 10 ms."""
    rows: dict[str, list[str]] = {}
    titles: Mapping[str, str] = READ_WRITE
    for table in tables(results, "readers"):
        if table["hold"]:
            for name, one in table["contestants"].items():
                cells = [f"{one['reads']:,.0f}; {one['writes']:,.0f}", f"{one['over_read']:.1f}"]
                rows[titles[name]] = [*cells, ""]
    for table in tables(results, "semaphore"):
        if table["hold"]:
            for name, one in table["contestants"].items():
                rows.setdefault(SEMAPHORES[name], ["", "", ""])[2] = f"{one['rate']:,.0f}"
    head = ["", "reads; writes per s", "longest wait of the writer / longest read", "permits per s"]
    return _table(head, [[name, *cells] for name, cells in rows.items()])


def growth(results: Document, _: Document) -> Iterator[str]:
    """How the figures of leaselock grow."""
    curves = {
        name: curve
        for table in tables(results, "growth")
        for name, curve in table["curves"].items()
    }
    rows = [
        [name, f"{curve['x'][0]:,.0f} to {curve['x'][-1]:,.0f}", f"{curve['exponent']:+.2f}"]
        for name, curve in curves.items()
    ]
    return _table(["figure", "size", "exponent"], rows)


def goals(results: Document, _: Document) -> Iterator[str]:
    """How many goals this run met."""
    found = [goal for some in results.values() for table in some for goal in table["goals"]]
    met = sum(goal["met"] for goal in found)
    yield f"This run met {met} of {len(found)} goals."


TABLES: dict[str, Callable[[Document, Document], Iterator[str]]] = {
    "run": run,
    "answer": answer,
    "pairs": pairs,
    "stores": stores,
    "network": network,
    "handoffs": handoffs,
    "each": each,
    "wake-ups": wake_ups,
    "shared": shared,
    "growth": growth,
    "goals": goals,
}

if __name__ == "__main__":
    main(*sys.argv[1:])
