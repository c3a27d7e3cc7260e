"""The machine and the versions measured, without paths or host names."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
from pathlib import Path

from benchmarks.contestants import ALL, TITLES, contestant, present

# The part of a contestant's name that is not the name of its library.
VARIANT = r"^aio-|-(file|redis|fair|expirable|masters|zookeeper|sql)$"


def processor() -> str:
    """Return the model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, str | int]:
    """Return a description of the machine."""
    return {
        "processor": processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
    }


def versions() -> dict[str, str]:
    """Return the versions of all libraries that are measured."""
    peers = [
        name for name in present(ALL) if not re.search(r"leaselock|bare|by hand", TITLES[name])
    ]
    return {re.sub(VARIANT, "", name): contestant(name).version for name in ["leaselock", *peers]}
