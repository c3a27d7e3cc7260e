"""Many tasks or threads of one process, on a private Redis.

The limit of the server is measured with the same scripts: their commands are packed in advance,
200 at a time are pipelined, and replies are not parsed.
"""

from __future__ import annotations

import random
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.servers.process import HOST
from testkit.servers.redis import Redis

from benchmarks.contestants import ON_LOOP, TITLES, contestant, present
from benchmarks.contestants.bare_redis import commands
from benchmarks.contestants.foreign import Foreign
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from benchmarks.workers.process import python_worker
from benchmarks.workloads.redis import announce
from leaselock._backends.redis.scripts import ACQUIRE, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.scale import Scale

BARE_TASKS, BARE_THREADS = "bare-aio", "bare-redis"
# Contestants in other languages, with a thread or task for each lock.
FOREIGN = ("redisson", "redsync", "node-redlock")
IN_THREADS = (
    *("redis", "redis-py", "python-redis-lock", "pottery", "portalocker-redis"),
    BARE_THREADS,
)
LIMIT = "limit"
REDIS_BENCHMARK = "redis-benchmark"
NAMES = {
    LIMIT: "the server's limit, same scripts",
    REDIS_BENCHMARK: "redis-benchmark -P 200, acquires only",
}
PIPELINED = 200
SHARED = 10
TASKS, THREADS = "tasks, a lock each", "threads, a lock each"
TASKS_ON_FEW = f"tasks on {SHARED} locks"
# The least rate of leaselock as a share of another's, for these numbers of tasks and threads.
LEAST_SHARES = {
    TASKS: {
        1000: {LIMIT: 0.6, BARE_TASKS: 0.7, "node-redlock": 1.0, "redsync": 1.0},
        10_000: {BARE_TASKS: 0.5},
    },
    THREADS: {8: {BARE_THREADS: 0.75}},
}
# Of a burst: microseconds of a pair, and the peak of memory, as a multiple of the bare client's.
BURST, MAX_PAIR, MAX_PEAK = 10_000, 45.0, 2.0
# More tasks are too many for libraries with a thread or a connection for each.
MAX_PEER_TASKS = 1000
# A window that is shorter than a few turns of all tasks counts their start, not their work.
SECONDS_EACH = 0.001
Rates = dict[str, list[dict[str, float]]]


def run(scale: Scale) -> list[Table]:
    """Measure all sizes on one server."""
    tables = []
    with Redis() as server, tempfile.TemporaryDirectory() as folder:
        bench = Bench(server, Path(folder), scale)
        for tasks in scale.tasks:
            tables += [separate(bench, tasks), shared(bench, tasks)]
        tables += [threads(bench, count) for count in scale.threads]
    return [*tables, growth(tables)]


class Bench:
    """One server, which is emptied before each measurement."""

    def __init__(self, server: Redis, folder: Path, scale: Scale) -> None:
        self.server, self.folder, self.scale = server, folder, scale
        announce(server.url, folder)

    def rounds(self, measurements: Mapping[str, Callable[[], dict[str, float]]]) -> Rates:
        """Run all measurements in several rounds, in random order."""
        rates: Rates = {name: [] for name in measurements}
        for _ in range(self.scale.contention_rounds):
            for name in random.sample(list(measurements), len(measurements)):
                self.server.ask("FLUSHALL")
                rates[name].append(measurements[name]())
        return rates

    def seconds_for(self, count: int) -> float:
        """How long to measure this many tasks: each must have its turn several times."""
        return max(self.scale.contention_seconds, count * SECONDS_EACH)

    def tasks(self, name: str, tasks: int, locks: int) -> dict[str, float]:
        """Measure a process with *tasks* tasks."""
        arguments = (name, self.folder, tasks, locks, self.seconds_for(tasks))
        with python_worker("benchmarks.workers.tasks", *arguments) as worker:
            return dict(worker.receive())

    def threads(self, name: str, count: int) -> dict[str, float]:
        """Measure a process with *count* threads."""
        arguments = (name, self.folder, count, self.scale.contention_seconds)
        with python_worker("benchmarks.workers.threads", *arguments) as worker:
            return dict(worker.receive())

    def foreign(self, name: str, count: int) -> dict[str, float]:
        """Measure a program in another language."""
        kind = contestant(name)
        assert issubclass(kind, Foreign)
        with kind.start(self.folder) as worker:
            worker.receive()
            return dict(worker.request(f"each {count} {self.seconds_for(count)}"))


def separate(bench: Bench, tasks: int) -> Table:
    """Measure tasks with a lock each."""
    measurements: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: bench.tasks(name, tasks, tasks)  # type: ignore[misc]
        for name in _of_size(present(ON_LOOP), tasks)
    }
    for name in _of_size(present(FOREIGN), tasks):
        measurements[name] = lambda name=name: bench.foreign(name, tasks)  # type: ignore[misc]
    measurements[LIMIT] = lambda: server_limit(bench.server, tasks, bench.seconds_for(tasks))
    if shutil.which(REDIS_BENCHMARK):
        measurements[REDIS_BENCHMARK] = lambda: redis_benchmark(bench.server, 20 * tasks)
    rates = bench.rounds(measurements)
    goals = _goals(TASKS, tasks, rates, "aio")
    if tasks == BURST:
        ours, bare = (_medians(rates[name]) for name in ("aio", BARE_TASKS))
        goals += [
            Goal("a pair, µs", 1e6 / ours["rate"], MAX_PAIR),
            Goal("peak memory x the bare client's", ours["peak"] / bare["peak"], MAX_PEAK),
        ]
    return table_of(TASKS, tasks, rates, LIMIT)._replace(goals=goals)


def _of_size(names: Sequence[str], tasks: int) -> list[str]:
    many = ("aio", "aio-redis-py", "node-redlock", BARE_TASKS)
    return [name for name in names if tasks <= MAX_PEER_TASKS or name in many]


def _goals(kind: str, size: int, rates: Rates, name: str) -> list[Goal]:
    shares = LEAST_SHARES[kind].get(size, {})
    ours = [one["rate"] for one in rates[name]]
    return [
        Goal(
            f"{_title(n)} / ours", ratio([one["rate"] for one in rates[n]], ours).median, 1 / share
        )
        for n, share in shares.items()
        if n in rates
    ]


def _medians(mine: Sequence[dict[str, float]]) -> dict[str, float]:
    return {key: spread([one[key] for one in mine]).median for key in mine[0]}


def shared(bench: Bench, tasks: int) -> Table:
    """Measure tasks that share a few locks."""
    measurements: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: bench.tasks(name, tasks, SHARED)  # type: ignore[misc]
        for name in _of_size(present(ON_LOOP), tasks)
        if name != BARE_TASKS
    }
    return table_of(TASKS_ON_FEW, tasks, bench.rounds(measurements), "aio-redis-py")


def threads(bench: Bench, count: int) -> Table:
    """Measure threads with a lock each."""
    measurements: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: bench.threads(name, count)  # type: ignore[misc]
        for name in present(IN_THREADS)
    }
    for name in present(FOREIGN):
        measurements[name] = lambda name=name: bench.foreign(name, count)  # type: ignore[misc]
    rates = bench.rounds(measurements)
    goals = _goals(THREADS, count, rates, "redis")
    return table_of(THREADS, count, rates, "redis-py")._replace(goals=goals)


def growth(tables: Sequence[Table]) -> Table:
    """Return how the time of a pair grows with the number of tasks or threads."""
    found: dict[str, dict[str, list[float]]] = {}
    for kind, name in {TASKS: "aio", TASKS_ON_FEW: "aio", THREADS: "redis"}.items():
        mine = [table for table in tables if table.data["kind"] == kind]
        times = [1 / table.data["rates"][name]["rate"]["median"] for table in mine]
        x = [table.data["size"] for table in mine]
        found[f"Redis: time of a pair, {kind}"] = {"x": x, "y": times}
    rows = [
        [text, _list(curve["x"]), _list([y * 1e6 for y in curve["y"]])]
        for text, curve in found.items()
    ]
    title = "Redis, many tasks or threads: time of leaselock per pair"
    return Table(title, ["", "tasks or threads", "µs"], rows, {"growth": found})


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


# --- the server's limit ---------------------------------------------------------------------------


def server_limit(server: Redis, tasks: int, seconds: float) -> dict[str, float]:
    """Measure pairs per second of the scripts alone, over one plain socket."""
    for script in (ACQUIRE, RELEASE):
        server.ask("SCRIPT", "LOAD", script.text)
    pairs = [b"".join(commands(f"task {number}")) for number in range(tasks)]
    count = PIPELINED // 2
    batches = [
        (b"".join(pairs[i : i + count]), len(pairs[i : i + count])) for i in range(0, tasks, count)
    ]
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    with socket.create_connection((HOST, server.port)) as connection:
        while time.perf_counter() < began + seconds:
            for batch, size in batches:
                connection.sendall(batch)
                read_replies(connection, size)
                done += size
    wall = time.perf_counter() - began
    return {"rate": done / wall, "cpu": (time.process_time() - cpu) / done}


def read_replies(connection: socket.socket, pairs: int) -> None:
    """Read the replies of *pairs* pairs: five lines each."""
    lines = 0
    while lines < 5 * pairs:
        lines += connection.recv(1 << 16).count(b"\r\n")
    assert lines == 5 * pairs, "an unexpected reply"


def redis_benchmark(server: Redis, count: int) -> dict[str, float]:
    """Measure acquires per second of free locks with redis-benchmark."""
    server.ask("SCRIPT", "LOAD", ACQUIRE.text)
    words = [word.decode() for word in commands("task __rand_int__")[0].split(b"\r\n")[2::2]]
    command = [REDIS_BENCHMARK, "-h", HOST, "-p", str(server.port), "-c", "1", "-P", str(PIPELINED)]
    command += ["-n", str(count), "-r", "1000000000", "--csv", *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    # The first column is the command, whose quotes are not escaped; seven columns follow.
    rate = run.stdout.strip().rsplit('","', 7)[1]
    return {"rate": float(rate), "cpu": 0.0}


# --- tables ---------------------------------------------------------------------------------------


def _title(name: str) -> str:
    return NAMES.get(name) or TITLES[name]


def table_of(kind: str, size: int, rates: Rates, reference: str) -> Table:
    """Return the table of the rates, and their ratios to the reference."""
    reference = reference if reference in rates else next(iter(rates))
    base = [one["rate"] for one in rates[reference]]
    with_peak = any("peak" in one for mine in rates.values() for one in mine)
    rows, data = [], {}
    for name, mine in rates.items():
        rate, cpu = (spread([one[key] for one in mine]) for key in ("rate", "cpu"))
        against = ratio([one["rate"] for one in mine], base)
        row = [against.show(digits=3), rate.show(digits=0), cpu.show(1e6, 1)]
        figures = {"ratio": against, "rate": rate, "cpu": cpu}
        if "peak" in mine[0]:
            figures["peak"] = spread([one["peak"] for one in mine])
        peak = [f"{figures['peak'].median / size / 1e3:.1f}" if "peak" in figures else ""]
        rows.append([_title(name), *row, *peak[: int(with_peak)]])
        data[name] = {key: value._asdict() for key, value in figures.items()}
    head = ["contestant", f"x {reference}", "pairs/s", "client CPU, µs"]
    head += ["peak memory, KB a task"][: int(with_peak)]
    return Table(f"Redis, {size} {kind}", head, rows, {"rates": data, "size": size, "kind": kind})
