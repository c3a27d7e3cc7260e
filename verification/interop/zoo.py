"""One Python process that contends in ZooKeeper: KIND URL PATH TURNS HOLD FILE...

Each file is a thread or task, and appears before its first acquire. KIND is threads, asyncio, kazoo
or kazoo-with-curator; HOLD is in milliseconds. An interval lies inside the hold, and is written
as "granted released token", where the token is the transaction that created the node.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.recipe.lock import Lock  # type: ignore[import-untyped]

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

LEASE = 30.0


class BesideCurator(Lock):  # type: ignore[misc]
    """kazoo's lock, configured to share a path with Curator's."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES: ClassVar[list[str]] = ["-lock-", "__lock__"]


class Contest:
    """The settings of all contenders of this process."""

    def __init__(self, url: str, path: str, count: str, hold: str) -> None:
        self.url = url
        self.hosts = url.partition("://")[2].partition("/")[0]
        self.path = path
        self.count = int(count)
        self.hold = float(hold) / 1000

    def turns(self, file: str, turn: Callable[[], tuple[int, int, int]]) -> None:
        """Acquire and release that often, and record that."""
        Path(file).touch()
        lines = [" ".join(map(str, turn())) for _ in range(self.count)]
        Path(file).write_text("".join(f"{line}\n" for line in lines))

    def by_kazoo(self, kind: type[Any], file: str) -> None:
        """With a client of its own."""
        client = KazooClient(self.hosts)
        client.start()
        lock = kind(client, self.path)

        def turn() -> tuple[int, int, int]:
            with lock:
                granted = time.monotonic_ns()
                token = client.exists(f"{self.path}/{lock.node}").czxid
                time.sleep(self.hold)
                return granted, time.monotonic_ns(), token

        self.turns(file, turn)
        client.stop()

    def in_threads(self, client: leaselock.Client, file: str) -> None:
        """With leaselock in threads."""
        lock = client.lock(self.path.rpartition("/")[2], lease=LEASE)

        def turn() -> tuple[int, int, int]:
            with lock as lease:
                granted = time.monotonic_ns()
                time.sleep(self.hold)
                return granted, time.monotonic_ns(), lease.token

        self.turns(file, turn)

    async def in_asyncio(self, client: leaselock.AsyncClient, file: str) -> None:
        """With leaselock in asyncio."""
        lock = client.lock(self.path.rpartition("/")[2], lease=LEASE)
        lines = []
        await asyncio.to_thread(Path(file).touch)
        for _ in range(self.count):
            async with lock as lease:
                granted = time.monotonic_ns()
                await asyncio.sleep(self.hold)
                lines.append(f"{granted} {time.monotonic_ns()} {lease.token}\n")
        await asyncio.to_thread(Path(file).write_text, "".join(lines))

    async def all_in_asyncio(self, files: list[str]) -> None:
        """A task for each file, one client."""
        async with leaselock.AsyncClient(self.url) as client:
            await asyncio.gather(*(self.in_asyncio(client, file) for file in files))

    def all_in_threads(self, files: list[str]) -> None:
        """A thread for each file, one client."""
        with leaselock.Client(self.url) as client:
            together([lambda file=file: self.in_threads(client, file) for file in files])

    def all_by_kazoo(self, kind: type[Any], files: list[str]) -> None:
        """A thread for each file."""
        together([lambda file=file: self.by_kazoo(kind, file) for file in files])


def together(jobs: list[Any]) -> None:
    """Each in a thread."""
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(kind: str, url: str, path: str, count: str, hold: str, *files: str) -> None:
    """Contend."""
    contest = Contest(url, path, count, hold)
    if kind == "asyncio":
        asyncio.run(contest.all_in_asyncio(list(files)))
    elif kind == "threads":
        contest.all_in_threads(list(files))
    else:
        contest.all_by_kazoo(Lock if kind == "kazoo" else BesideCurator, list(files))


if __name__ == "__main__":
    main(*sys.argv[1:])
