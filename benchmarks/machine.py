"""Where it was measured: what makes a difference to the numbers, and no paths or names."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
from pathlib import Path

from benchmarks.contestants import ALL, TITLES, contestant, present

# What the name of a contestant says beside that of its library.
WAY = r"^aio-|-(file|redis|fair|masters|zookeeper|sql)$"


def processor() -> str:
    """What the processor calls itself."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.machine())


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def machine() -> dict[str, str | int]:
    """The machine, for people and for JSON."""
    return {
        "processor": processor(),
        "cores": cores(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "sqlite": sqlite3.sqlite_version,
    }


def versions() -> dict[str, str]:
    """The libraries' versions; what is bare belongs to the machine."""
    peers = [name for name in present(ALL) if not re.search(r"leaselock|bare", TITLES[name])]
    return {re.sub(WAY, "", name): contestant(name).version for name in ["leaselock", *peers]}
