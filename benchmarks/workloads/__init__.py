"""The workloads: one module each, with a function `run` that returns tables."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.scale import Scale
    from benchmarks.tables import Table

NAMES = (
    *("pair", "nested", "contention", "waiting", "startup"),
    *("redis", "redis_each", "redis_waiters", "redis_leases", "redlock", "local"),
    *("zookeeper", "sql", "documents", "stores", "readers", "semaphore"),
)


def workload(name: str) -> Callable[[Scale], list[Table]]:
    """Return the function that measures *name*."""
    run: Callable[[Scale], list[Table]] = import_module(f"{__name__}.{name}").run
    return run
