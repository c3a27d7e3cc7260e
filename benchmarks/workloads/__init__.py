"""The workloads: one module each, with a function `run` that returns or yields tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from benchmarks.scale import Scale
    from benchmarks.tables import Table

NAMES = (
    *("pair", "nested", "contention", "waiting", "startup"),
    *("redis", "redis_each", "redis_waiters", "redis_leases", "redlock"),
    *("zookeeper", "sql", "documents", "stores", "network", "readers", "semaphore", "idle"),
)


def workload(name: str) -> Callable[[Scale], Iterable[Table]]:
    """Return the function that measures *name*."""
    run: Callable[[Scale], Iterable[Table]] = import_module(f"{__name__}.{name}").run
    return run
