"""What it costs to wait: a process asks for a lock that another holds, and is watched meanwhile."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import CLASSES, REFERENCE, TITLES, contestant, present
from benchmarks.crew import python
from benchmarks.tables import Goal, Table
from benchmarks.waiter import NOBODY

if TYPE_CHECKING:
    from benchmarks.scale import Scale

CPU_MOST = 1.0
RSS_MOST = 16.0


class Watched(NamedTuple):
    """What the kernel says of one process."""

    rss: float
    """MiB of memory in use."""
    cpu: float
    """Milliseconds of processor."""
    wakes: int
    """How often a thread of it went to sleep again."""


def look(pid: int) -> Watched:
    """What the kernel says now."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    cpu = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    wakes = sum(_field(task / "status", "voluntary_ctxt_switches") for task in tasks)
    return Watched(_field(Path(f"/proc/{pid}/status"), "VmRSS") / 1024, cpu / 1e6, wakes)


def _field(path: Path, name: str) -> int:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next(int(value.split()[0]) for title, _, value in lines if title == name)


def watch(name: str, folder: str, scale: Scale) -> Watched:
    """Memory at the end, and what was used while it waited."""
    with python("benchmarks.waiter", name, folder) as member:
        member.hear()
        time.sleep(scale.settling)
        before = look(member.process.pid)
        time.sleep(scale.wait)
        after = look(member.process.pid)
    return Watched(after.rss, after.cpu - before.cpu, after.wakes - before.wakes)


def held_and_watched(name: str, scale: Scale) -> Watched:
    """Hold the lock, and watch who waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        if name == NOBODY:
            return watch(name, folder, scale)
        with closing(contestant(name)(Path(folder))) as lock:
            lock.acquire()
            watched = watch(name, folder, scale)
            lock.release()
            return watched


def run(scale: Scale) -> list[Table]:
    """Watch one waiter of each contestant that can wait."""
    title = f"waiting: one process waits {scale.wait:g} s for a lock that is held"
    if not sys.platform.startswith("linux"):
        return [Table(title, ["contestant"], [], {}, notes=["skipped: needs Linux's /proc"])]
    names = [NOBODY, *(name for name in present(CLASSES) if contestant(name).waits)]
    seen = {n: held_and_watched(n, scale) for n in random.sample(names, len(names))}
    idle = seen.pop(NOBODY)
    return [_table(title, idle, {n: seen[n] for n in names if n in seen}, scale.wait)]


def _table(title: str, idle: Watched, seen: dict[str, Watched], seconds: float) -> Table:
    head = ["contestant", f"CPU x {REFERENCE}", "CPU, ms", "wake-ups/s", "MiB over idle Python"]
    rows, data = [], {}
    base = seen[REFERENCE].cpu if REFERENCE in seen else 0.0
    for name, watched in seen.items():
        over = watched.rss - idle.rss
        against = watched.cpu / base if base else 0.0
        wakes = f"{watched.wakes / seconds:.1f}"
        rows.append([TITLES[name], f"{against:.3f}", f"{watched.cpu:.2f}", wakes, f"{over:.1f}"])
        data[name] = watched._asdict() | {"rss_over_idle": over, "ratio": against}
    mine = data["leaselock"]
    goals = [
        Goal("CPU of a waiter, ms per s", mine["cpu"] / seconds, CPU_MOST),
        Goal("memory of a waiter, MiB over idle Python", mine["rss_over_idle"], RSS_MOST),
    ]
    notes = [f"idle Python: {idle.rss:.1f} MiB"]
    return Table(title, head, rows, {"idle": idle._asdict(), "contestants": data}, goals, notes)
