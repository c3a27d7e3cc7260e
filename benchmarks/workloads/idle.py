"""Many names that are not used any more: listing, examining and collecting them, and an acquire and
release beside the collection.

The rows are those of locks that were released long ago, as years of names like "order:5" leave
them. Databases are filled by one statement; Redis and etcd by acquiring each name, so they have a
tenth of the names.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psycopg
from testkit.servers.etcd import Etcd
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import Postgres
from testkit.servers.redis import Redis

import leaselock
from benchmarks.figures import percentile
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.scale import Scale

# The names were locked ten days ago, for the last time.
AGE = 10 * 86400
# How long a pair is measured without a collection beside it, in seconds.
ALONE = 1.0
# Pauses of the process that acquires: a lock is not all that it uses.
BETWEEN = 0.001
MOST_MS, LEAST_ROWS = 5.0, 20_000.0
AT_ONCE = 200


class Pairs(NamedTuple):
    """How long it took to acquire and release a free lock, in milliseconds."""

    median: float
    p99: float
    longest: float


class Measured(NamedTuple):
    """One store."""

    names: int
    ls: float
    ls_name: float
    doctor: float
    gc: float
    removed: int
    alone: Pairs
    beside: Pairs

    @property
    def rows_per_second(self) -> float:
        """How many rows were removed each second."""
        return self.removed / self.gc


def run(scale: Scale) -> Iterator[Table]:
    """Fill and measure each store."""
    found: dict[str, Measured] = {}
    tenth = scale.idle // 10
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        enter = stack.enter_context
        fills: dict[str, Callable[[], tuple[str, int]]] = {
            "SQLite": lambda: sqlite(folder / "locks.db", scale.idle),
            "PostgreSQL": lambda: postgres(enter(Postgres()), scale.idle),
            "MariaDB": lambda: mariadb(enter(MariaDB()), scale.idle),
            "Redis": lambda: acquired(enter(Redis()).url, tenth),
            "etcd": lambda: acquired(enter(Etcd()).url("idle"), tenth),
        }
        for name, fill in fills.items():
            found[name] = measured(*fill())
    yield _table(found)


def sqlite(path: Path, names: int) -> tuple[str, int]:
    """A file with so many names."""
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client, client.lock("first"):
        pass
    with closing(sqlite3.connect(path)) as database:
        rows = ((f"order:{number}", time.time() - AGE) for number in range(names))
        database.executemany("INSERT INTO lock (name, token, since) VALUES (?, 1, ?)", rows)
        database.commit()
    return url, names


def postgres(server: Postgres, names: int) -> tuple[str, int]:
    """A database with so many names."""
    _create(server.url)
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO leaselock_lock (name, token, since) SELECT 'order:' || number, 1, %s "
            "FROM generate_series(1, %s) AS number",
            (_since(), names),
        )
    return server.url, names


def mariadb(server: MariaDB, names: int) -> tuple[str, int]:
    """A database with so many names."""
    _create(server.url)
    server.do(
        "USE locks",
        "INSERT INTO leaselock_lock (name, token, since) "
        f"SELECT CONCAT('order:', seq), 1, {_since()} FROM seq_1_to_{names}",
    )
    return server.url, names


def acquired(url: str, names: int) -> tuple[str, int]:
    """A store in which each name was acquired and released."""

    async def fill() -> None:
        async with leaselock.AsyncClient(url, op_timeout=60) as client:
            numbers = iter(range(names))

            async def some() -> None:
                for number in numbers:
                    async with client.lock(f"order:{number}"):
                        pass

            await asyncio.gather(*(some() for _ in range(AT_ONCE)))

    asyncio.run(fill())
    return f"{url}{'&' if '?' in url else '?'}token_ttl=1s", names


def _create(url: str) -> None:
    with leaselock.Client(url) as client:
        client.setup()


def _since() -> int:
    return int((time.time() - AGE) * 1e6)


def measured(url: str, names: int) -> Measured:
    """Measure one store; the collection comes last."""
    with leaselock.Client(url, op_timeout=60) as client:
        ls = _seconds(client.locks)
        ls_name = _seconds(lambda: client.locks("order:5"))
        doctor = _seconds(client.doctor)
        until = time.perf_counter() + ALONE
        alone = pairs(client, lambda: time.perf_counter() < until)
        program = (
            "import sys, time, leaselock\n"
            "with leaselock.Client(sys.argv[1], op_timeout=60) as client:\n"
            "    began = time.perf_counter(); removed = client.gc()\n"
            "    print(removed, time.perf_counter() - began)"
        )
        command = [sys.executable, "-c", program, url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            beside = pairs(client, lambda: process.poll() is None)
            assert process.stdout is not None
            removed, gc = process.stdout.read().split()
    return Measured(names, ls, ls_name, doctor, float(gc), int(removed), alone, beside)


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def pairs(client: leaselock.Client, goes_on: Callable[[], bool]) -> Pairs:
    """Acquire and release a free lock again and again."""
    lock = client.lock("pair")
    took: list[float] = []
    while goes_on() or not took:
        began = time.perf_counter()
        with lock:
            pass
        took.append((time.perf_counter() - began) * 1e3)
        time.sleep(BETWEEN)
    took.sort()
    return Pairs(percentile(took, 50), percentile(took, 99), took[-1])


def _table(found: dict[str, Measured]) -> Table:
    head = ["store", "names", "`ls`, ms", "`ls NAME`, ms", "`doctor`, ms", "`gc`, rows/s"]
    head += ["pair, ms: median, p99", "beside `gc`: median, p99, longest"]
    rows = [
        [
            *(name, f"{one.names}"),
            *(f"{seconds * 1e3:.1f}" for seconds in (one.ls, one.ls_name, one.doctor)),
            f"{one.rows_per_second:.0f}",
            f"{one.alone.median:.2f}, {one.alone.p99:.2f}",
            f"{one.beside.median:.2f}, {one.beside.p99:.2f}, {one.beside.longest:.1f}",
        ]
        for name, one in found.items()
    ]
    file = found["SQLite"]
    goals = [
        Goal("SQLite: pair beside `gc`, p99, ms", file.beside.p99, MOST_MS),
        Goal("SQLite: `gc`, µs for each row", 1e6 / file.rows_per_second, 1e6 / LEAST_ROWS),
    ]
    plain = {name: one._asdict() | {"rows/s": one.rows_per_second} for name, one in found.items()}
    title = "idle: many names that are not used any more"
    return Table(title, head, rows, {"stores": plain}, goals)
