"""What charts and pages look up in the results of a run."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from benchmarks.contestants import TITLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Document = dict[str, Any]
PROCESSES, TASKS = 8, 1000
# The same work without a lock library: nothing that does it can be faster.
FLOORS = (
    *("sqlite", "bare-redis", "bare-handoff", "bare-aio", "bare-zookeeper"),
    *("bare-sql-lease", "bare-etcd", "bare-dynamodb"),
)


@cache
def floors() -> frozenset[str]:
    """Return the names of the floors."""
    return frozenset(FLOORS)


def tables(results: Document, *workloads: str) -> list[Document]:
    """Return the tables of these workloads, without those that failed."""
    found = (table for name in workloads for table in results.get(name, ()))
    return [table for table in found if "failed" not in table]


def pair_of(results: Document, name: str, title: str = "") -> Document | None:
    """Return the contestants that were measured beside *name* with a free lock."""
    for table in tables(results, "pair", "redis", "zookeeper", "sql", "documents"):
        known = "pair: " in table["title"] and table["title"].startswith(title)
        if known and name in table.get("contestants", {}):
            found: Document = table["contestants"]
            return found
    return None


def contention_of(results: Document, hold: float) -> Document | None:
    """Return the table of the processes that contend for a lock on Redis; of 8, if measured."""
    found = [table for table in tables(results, "redis") if table.get("hold") == hold]
    return _of_size(found, "processes", PROCESSES)


def tasks_of(results: Document, kind: str, size: int = TASKS) -> Document | None:
    """Return the table of the tasks or threads with a free lock; of that many, if measured."""
    found = [table for table in tables(results, "redis_each") if table.get("kind") == kind]
    return _of_size(found, "size", size)


def _of_size(found: list[Document], key: str, size: int) -> Document | None:
    exact = [table for table in found if table[key] == size]
    return next(iter(exact or sorted(found, key=lambda table: -table[key])), None)


def is_ours(name: str) -> bool:
    """Whether a contestant is leaselock."""
    return TITLES.get(name, name).startswith("**")


def peers(names: Iterable[str]) -> list[str]:
    """Return the contestants that are other libraries."""
    return [
        name
        for name in names
        if name in TITLES
        and not is_ours(name)
        and not re.match(r"(two )?bare|by hand", TITLES[name])
    ]


def best(values: Mapping[str, float], *, most: bool = False) -> tuple[str, float] | None:
    """Return the peer with the least value, or the greatest one, if a peer was measured."""
    found = {name: values[name] for name in peers(values)}
    if not found:
        return None
    name = (max if most else min)(found, key=found.__getitem__)
    return name, found[name]
