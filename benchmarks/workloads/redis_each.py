"""Many at once in one process, on a private Redis: tasks and threads.

Law: the server's own limit is measured with the same scripts, their commands packed beforehand,
200 of them on the way at a time; nothing is parsed.
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

from tests.servers.process import HOST
from tests.servers.redis import Redis

from benchmarks.contestants import ON_LOOP, TITLES, contestant, present
from benchmarks.contestants.foreign import Foreign
from benchmarks.contestants.raw_redis import commands
from benchmarks.crew import python
from benchmarks.figures import ratio, spread
from benchmarks.tables import Goal, Table
from benchmarks.workloads.redis import announce
from leaselock.backends.redis.scripts import ACQUIRE, RELEASE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from benchmarks.scale import Scale

# Who may take part: in another language, a thread or task of it for each lock.
FOREIGN = ("redisson", "redsync", "node-redlock")
IN_THREADS = ("redis", "redis-py", "python-redis-lock", "pottery", "portalocker-redis")
LIMIT = "limit"
FLOOD = "redis-benchmark"
NAMES = {LIMIT: "the server's limit, same scripts", FLOOD: "redis-benchmark -P 200, acquires only"}
ON_THE_WAY = 200
SHARED = 10
TASKS, THREADS = "tasks, a lock each", "threads, a lock each"
TASKS_ON_FEW = f"tasks on {SHARED} locks"
OF_THE_LIMIT, OVER_REDIS_PY = 0.6, 15.0
# So many tasks are too many for those who make a thread or a connection for each.
MOST_OF_OTHERS = 1000
Rates = dict[str, list[dict[str, float]]]


def run(scale: Scale) -> list[Table]:
    """Measure all sizes, on one server."""
    tables = []
    with Redis() as server, tempfile.TemporaryDirectory() as folder:
        hall = Hall(server, Path(folder), scale)
        for tasks in scale.tasks:
            tables += [own(hall, tasks), shared(hall, tasks)]
        tables += [threads(hall, count) for count in scale.threads]
    return [*tables, growth(tables)]


class Hall:
    """Where they are measured: one server, emptied before each turn."""

    def __init__(self, server: Redis, folder: Path, scale: Scale) -> None:
        self.server, self.folder, self.scale = server, folder, scale
        announce(server.url, folder)

    def rounds(self, ways: Mapping[str, Callable[[], dict[str, float]]]) -> Rates:
        """All in random order, round by round."""
        rates: Rates = {name: [] for name in ways}
        for _ in range(self.scale.crowd_rounds):
            for name in random.sample(list(ways), len(ways)):
                self.server.ask("FLUSHALL")
                rates[name].append(ways[name]())
        return rates

    def tasks(self, name: str, tasks: int, locks: int) -> dict[str, float]:
        """What a process of so many tasks reaches."""
        arguments = (name, self.folder, tasks, locks, self.scale.crowd_turn)
        with python("benchmarks.tasks", *arguments) as member:
            return dict(member.hear())

    def threads(self, name: str, count: int) -> dict[str, float]:
        """What a process of so many threads reaches."""
        arguments = (name, self.folder, count, self.scale.crowd_turn)
        with python("benchmarks.threads", *arguments) as member:
            return dict(member.hear())

    def foreign(self, name: str, count: int) -> dict[str, float]:
        """What a program of another language reaches."""
        kind = contestant(name)
        assert issubclass(kind, Foreign)
        with kind.enlisted(self.folder) as member:
            member.hear()
            return dict(member.ask(f"each {count} {self.scale.crowd_turn}"))


def own(hall: Hall, tasks: int) -> Table:
    """A lock for each task."""
    ways: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: hall.tasks(name, tasks, tasks)  # type: ignore[misc]
        for name in _of_size(present(ON_LOOP), tasks)
    }
    for name in _of_size(present(FOREIGN), tasks):
        ways[name] = lambda name=name: hall.foreign(name, tasks)  # type: ignore[misc]
    ways[LIMIT] = lambda: limit(hall.server, tasks, hall.scale.crowd_turn)
    if shutil.which(FLOOD):
        ways[FLOOD] = lambda: flood(hall.server, 20 * tasks)
    rates = hall.rounds(ways)
    table = table_of(TASKS, tasks, rates, LIMIT)
    return table._replace(goals=_goals(rates) if tasks == 1000 else [])


def _of_size(names: Sequence[str], tasks: int) -> list[str]:
    ours = ("aio", "aio-redis-py", "node-redlock")
    return [name for name in names if tasks <= MOST_OF_OTHERS or name in ours]


def _goals(rates: Rates) -> list[Goal]:
    ours = [one["rate"] for one in rates["aio"]]
    others = {LIMIT: 1 / OF_THE_LIMIT, "aio-redis-py": 1 / OVER_REDIS_PY}
    return [
        Goal(f"{_title(name)} / ours", ratio([r["rate"] for r in rates[name]], ours).median, most)
        for name, most in others.items()
    ]


def shared(hall: Hall, tasks: int) -> Table:
    """All on a few locks."""
    ways: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: hall.tasks(name, tasks, SHARED)  # type: ignore[misc]
        for name in _of_size(present(ON_LOOP), tasks)
    }
    return table_of(TASKS_ON_FEW, tasks, hall.rounds(ways), "aio-redis-py")


def threads(hall: Hall, count: int) -> Table:
    """A lock for each thread."""
    ways: dict[str, Callable[[], dict[str, float]]] = {
        name: lambda name=name: hall.threads(name, count)  # type: ignore[misc]
        for name in present(IN_THREADS)
    }
    for name in present(FOREIGN):
        ways[name] = lambda name=name: hall.foreign(name, count)  # type: ignore[misc]
    return table_of(THREADS, count, hall.rounds(ways), "redis-py")


def growth(tables: Sequence[Table]) -> Table:
    """How the time of a pair grows with the number of those who are at it."""
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
    title = "Redis, many at once: what a pair takes of the time of all of leaselock"
    return Table(title, ["", "how many", "µs"], rows, {"growth": found})


def _list(values: Sequence[float]) -> str:
    return ", ".join(f"{value:,.0f}" for value in values)


# --- the server's limit ---------------------------------------------------------------------------


def limit(server: Redis, tasks: int, seconds: float) -> dict[str, float]:
    """Pairs a second of the scripts alone, over one plain socket."""
    for script in (ACQUIRE, RELEASE):
        server.ask("SCRIPT", "LOAD", script.text)
    pairs = [b"".join(commands(f"task {number}")) for number in range(tasks)]
    count = ON_THE_WAY // 2
    batches = [
        (b"".join(pairs[i : i + count]), len(pairs[i : i + count])) for i in range(0, tasks, count)
    ]
    done, began, cpu = 0, time.perf_counter(), time.process_time()
    with socket.create_connection((HOST, server.port)) as line:
        while time.perf_counter() < began + seconds:
            for batch, size in batches:
                line.sendall(batch)
                skip(line, size)
                done += size
    wall = time.perf_counter() - began
    return {"rate": done / wall, "cpu": (time.process_time() - cpu) / done}


def skip(line: socket.socket, pairs: int) -> None:
    """Read the replies of so many pairs: five lines each."""
    lines = 0
    while lines < 5 * pairs:
        lines += line.recv(1 << 16).count(b"\r\n")
    assert lines == 5 * pairs, "an unexpected reply"


def flood(server: Redis, count: int) -> dict[str, float]:
    """Acquires a second of free locks, by the server's own tool."""
    server.ask("SCRIPT", "LOAD", ACQUIRE.text)
    words = [word.decode() for word in commands("task __rand_int__")[0].split(b"\r\n")[2::2]]
    command = [FLOOD, "-h", HOST, "-p", str(server.port), "-c", "1", "-P", str(ON_THE_WAY)]
    command += ["-n", str(count), "-r", "1000000000", "--csv", *words]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    # Its first column is the command, whose own quotes are not marked; seven follow.
    rate = run.stdout.strip().rsplit('","', 7)[1]
    return {"rate": float(rate), "cpu": 0.0}


# --- tables ---------------------------------------------------------------------------------------


def _title(name: str) -> str:
    return NAMES.get(name) or TITLES[name]


def table_of(kind: str, size: int, rates: Rates, reference: str) -> Table:
    """The rates, and how many times that of the reference they are."""
    reference = reference if reference in rates else next(iter(rates))
    base = [one["rate"] for one in rates[reference]]
    rows, data = [], {}
    for name, mine in rates.items():
        rate, cpu = (spread([one[key] for one in mine]) for key in ("rate", "cpu"))
        against = ratio([one["rate"] for one in mine], base)
        row = [against.show(digits=3), rate.show(digits=0), cpu.show(1e6, 1)]
        rows.append([_title(name), *row])
        data[name] = {"ratio": against._asdict(), "rate": rate._asdict(), "cpu": cpu._asdict()}
    head = ["contestant", f"x {reference}", "pairs/s", "client CPU, µs"]
    return Table(f"Redis, {size} {kind}", head, rows, {"rates": data, "size": size, "kind": kind})
