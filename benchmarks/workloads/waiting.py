"""The cost of waiting: a process waits for a lock that another process holds."""

from __future__ import annotations

import random
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.contestants import CLASSES, REFERENCE, TITLES, contestant, present
from benchmarks.tables import Goal, Table
from benchmarks.workers.process import python_worker
from benchmarks.workers.waiter import IDLE

if TYPE_CHECKING:
    from benchmarks.scale import Scale

MAX_CPU = 1.0
MAX_RSS = 16.0


class Usage(NamedTuple):
    """The resource usage of one process, as the kernel reports it."""

    rss: float
    """Resident memory in MiB."""
    cpu: float
    """CPU time in milliseconds."""
    wake_ups: int
    """Voluntary context switches of all threads."""


def usage_of(pid: int) -> Usage:
    """Return the present usage."""
    tasks = list(Path(f"/proc/{pid}/task").iterdir())
    cpu = sum(int((task / "schedstat").read_text().split()[0]) for task in tasks)
    wake_ups = sum(_field(task / "status", "voluntary_ctxt_switches") for task in tasks)
    return Usage(_field(Path(f"/proc/{pid}/status"), "VmRSS") / 1024, cpu / 1e6, wake_ups)


def _field(path: Path, name: str) -> int:
    lines = (line.partition(":") for line in path.read_text().splitlines())
    return next(int(value.split()[0]) for title, _, value in lines if title == name)


def watch(name: str, folder: str, scale: Scale) -> Usage:
    """Return the memory at the end, and the CPU time and wake-ups of the wait."""
    with python_worker("benchmarks.workers.waiter", name, folder) as worker:
        worker.receive()
        time.sleep(scale.settle_seconds)
        before = usage_of(worker.process.pid)
        time.sleep(scale.watch_seconds)
        after = usage_of(worker.process.pid)
    return Usage(after.rss, after.cpu - before.cpu, after.wake_ups - before.wake_ups)


def watch_waiter(name: str, scale: Scale) -> Usage:
    """Hold the lock, and observe a process that waits for it."""
    with tempfile.TemporaryDirectory() as folder:
        if name == IDLE:
            return watch(name, folder, scale)
        with closing(contestant(name)(Path(folder))) as lock:
            lock.acquire()
            usage = watch(name, folder, scale)
            lock.release()
            return usage


def run(scale: Scale) -> list[Table]:
    """Observe one waiter of each contestant that can wait."""
    title = f"waiting: one process waits {scale.watch_seconds:g} s for a lock that is held"
    if not sys.platform.startswith("linux"):
        return [Table(title, ["contestant"], [], {}, notes=["skipped: needs Linux's /proc"])]
    names = [IDLE, *(name for name in present(CLASSES) if contestant(name).waits)]
    seen = {n: watch_waiter(n, scale) for n in random.sample(names, len(names))}
    idle = seen.pop(IDLE)
    return [_table(title, idle, {n: seen[n] for n in names if n in seen}, scale.watch_seconds)]


def _table(title: str, idle: Usage, seen: dict[str, Usage], seconds: float) -> Table:
    head = ["contestant", f"CPU x {REFERENCE}", "CPU, ms", "wake-ups/s", "MiB over idle Python"]
    rows, data = [], {}
    base = seen[REFERENCE].cpu if REFERENCE in seen else 0.0
    for name, usage in seen.items():
        over = usage.rss - idle.rss
        against = usage.cpu / base if base else 0.0
        wake_ups = f"{usage.wake_ups / seconds:.1f}"
        rows.append([TITLES[name], f"{against:.3f}", f"{usage.cpu:.2f}", wake_ups, f"{over:.1f}"])
        data[name] = usage._asdict() | {"rss_over_idle": over, "ratio": against}
    mine = data["leaselock"]
    goals = [
        Goal("CPU of a waiter, ms per s", mine["cpu"] / seconds, MAX_CPU),
        Goal("memory of a waiter, MiB over idle Python", mine["rss_over_idle"], MAX_RSS),
    ]
    notes = [f"idle Python: {idle.rss:.1f} MiB"]
    return Table(title, head, rows, {"idle": idle._asdict(), "contestants": data}, goals, notes)
