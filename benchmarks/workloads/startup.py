"""The time to start: an import, a client, a command that runs while holding a lock."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import spread
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MAX_IMPORT, MAX_RUN = 15.0, 60.0
BARE = "python -c pass"
FLOOR = "python, the same standard modules, true"
IMPORT = "import leaselock"
CLIENT = "import leaselock; leaselock.Client"
RUN = "leaselock run x -- true"
TRUE = "true"

# What the command imports of the standard library.
MODULES = (
    "argparse, contextlib, ctypes, datetime, queue, select, signal, sqlite3, threading, typing"
)
PYTHON = {
    BARE: "pass",
    FLOOR: f"import {MODULES}, os, shutil\n"
    "os.waitpid(os.posix_spawn(shutil.which('true') or '/bin/true', ['true'], os.environ), 0)",
    IMPORT: IMPORT,
    CLIENT: CLIENT,
    "one lock acquired and released": "import leaselock\n"
    "with leaselock.Client() as client, client.lock('x'): pass",
    "import filelock": "import filelock",
    "import portalocker": "import portalocker",
    "import redis_lock": "import redis_lock",
    "import pottery": "import pottery",
    "import kazoo.client": "import kazoo.client",
}


class Start(NamedTuple):
    """Wall time and CPU time of one process, in seconds."""

    wall: float
    cpu: float


def commands() -> dict[str, list[str]]:
    """Return all commands by title."""
    found = {title: [sys.executable, "-c", text] for title, text in PYTHON.items()}
    script = Path(sys.executable).with_name("leaselock")
    leaselock = [str(script)] if script.exists() else [sys.executable, "-m", "leaselock"]
    found[RUN] = [*leaselock, "run", "x", "--", _true()]
    found[TRUE] = [_true()]
    return found


def _true() -> str:
    return shutil.which("true") or "/bin/true"


def start(command: list[str], environment: dict[str, str]) -> Start:
    """Run a command to its end."""
    began = time.perf_counter()
    pid = os.posix_spawn(command[0], command, environment)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - began
    if status:
        raise RuntimeError(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return Start(wall, usage.ru_utime + usage.ru_stime)


def fault(command: list[str], environment: dict[str, str]) -> str:
    """Return why a command fails here; empty if it works."""
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    last = (run.stderr.strip().splitlines() or ["no message"])[-1]
    return "" if run.returncode == 0 else f"exit code {run.returncode}: {last}"


def environment_in(folder: str) -> dict[str, str]:
    """Return the environment: the default store, and compiled modules as after an installation."""
    ours = {"XDG_STATE_HOME": f"{folder}/state", "PYTHONPYCACHEPREFIX": f"{folder}/compiled"}
    unwanted = ("LEASELOCK_URL", "PYTHONDONTWRITEBYTECODE")
    return {k: v for k, v in os.environ.items() if k not in unwanted} | ours


def run(scale: Scale) -> list[Table]:
    """Start all commands in several rounds, in random order."""
    with tempfile.TemporaryDirectory() as folder:
        environment = environment_in(folder)
        every = commands()
        faults = {title: fault(command, environment) for title, command in every.items()}
        works = [title for title in every if not faults[title]]
        starts: dict[str, list[Start]] = {title: [] for title in works}
        for _ in range(scale.starts):
            for title in random.sample(works, len(works)):
                starts[title].append(start(every[title], environment))
    return [_table(starts, {title: why for title, why in faults.items() if why})]


def _table(starts: dict[str, list[Start]], faults: dict[str, str]) -> Table:
    walls = {title: spread([one.wall for one in mine]) for title, mine in starts.items()}
    bare = walls[BARE].median
    rows, data = [], {}
    for title, mine in starts.items():
        wall, cpu = walls[title], spread([one.cpu for one in mine])
        over = (wall.median - bare) * 1e3
        row = [f"{wall.median / bare:.2f}", f"{over:+.1f}", wall.show(1e3), cpu.show(1e3)]
        rows.append([f"`{title}`", *row])
        data[title] = {
            "seconds": wall._asdict(),
            "cpu_seconds": cpu._asdict(),
            "over_bare_ms": over,
        }
    limits = {IMPORT: MAX_IMPORT, RUN: MAX_RUN}
    goals = [
        Goal(f"`{title}`, ms over `{BARE}`", (walls[title].median - bare) * 1e3, most)
        for title, most in limits.items()
        if title in walls
    ]
    notes = [f"`{title}` skipped: {why}" for title, why in faults.items()]
    head = ["process", f"x `{BARE}`", "ms more", "ms", "CPU, ms"]
    title = "startup: duration of whole processes"
    return Table(title, head, rows, {"processes": data}, goals, notes)
