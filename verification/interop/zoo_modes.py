"""One Python process that contends in ZooKeeper in several modes: KIND URL PATH TURNS HOLD FILE...

Each file is a thread or task, as in the module `zoo`. KIND is threads, asyncio or kazoo. The mode
is in the name of the file: read, write, update or permit. An update is upgraded if that is possible
soon, and is a read otherwise; its line then ends with "read". Who holds a permit keeps it until all
permits have been held at once.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.process import eventually
from verification.interop.zoo import together

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

PERMITS = 2
# The folder where each contender leaves a mark when it holds a permit.
MARKS = "held"
# Seconds. The servers may be slow while other tests run, which does not matter here.
SOON = 10.0
OP_TIMEOUT = SESSION = 60.0


class Job:
    """The settings of all contenders of this process."""

    def __init__(self, url: str, path: str, count: str, hold: str) -> None:
        self.url = url
        self.hosts = url.partition("://")[2].partition("/")[0]
        self.path, self.name = path, path.rpartition("/")[2]
        self.count = int(count)
        self.hold = float(hold) / 1000

    def lock(self, client: Any, mode: str) -> Any:
        """The lock of leaselock in this mode."""
        if mode == "permit":
            return client.semaphore(self.name, permits=PERMITS)
        return getattr(client.rwlock(self.name), mode)

    def in_threads(self, files: list[str]) -> None:
        """A thread for each file, one client."""
        with leaselock.Client(self.url, op_timeout=OP_TIMEOUT) as client:
            together([lambda file=file: self._in_thread(client, file) for file in files])

    def _in_thread(self, client: leaselock.Client, file: str) -> None:
        lock = self.lock(client, mode_of(file))

        def turn() -> str:
            with lock as lease:
                how = ""
                if mode_of(file) == "update" and not lease.upgrade(SOON):
                    how = " read"
                granted = time.monotonic_ns()
                self._stay(file)
                return f"{granted} {time.monotonic_ns()} {lease.token}{how}"

        self._turns(file, turn)

    async def in_asyncio(self, files: list[str]) -> None:
        """A task for each file, one client."""
        async with leaselock.AsyncClient(self.url, op_timeout=OP_TIMEOUT) as client:
            await asyncio.gather(*(self._in_task(client, file) for file in files))

    async def _in_task(self, client: leaselock.AsyncClient, file: str) -> None:
        lock, lines = self.lock(client, mode_of(file)), []
        await asyncio.to_thread(Path(file).touch)
        for _ in range(self.count):
            async with lock as lease:
                granted = time.monotonic_ns()
                await asyncio.to_thread(self._stay, file)
                lines.append(f"{granted} {time.monotonic_ns()} {lease.token}\n")
        await asyncio.to_thread(Path(file).write_text, "".join(lines))

    def by_kazoo(self, files: list[str]) -> None:
        """A thread and a client for each file."""
        together([lambda file=file: self._by_kazoo(file) for file in files])

    def _by_kazoo(self, file: str) -> None:
        client = KazooClient(self.hosts, timeout=SESSION)
        client.start()
        kinds = {"read": client.ReadLock, "write": client.WriteLock}
        mode = mode_of(file)

        def turn() -> str:
            # A semaphore of kazoo can be acquired once.
            with lock or client.Semaphore(self.path, max_leases=PERMITS):
                granted = time.monotonic_ns()
                self._stay(file)
                return f"{granted} {time.monotonic_ns()} 0"

        lock: Any = None if mode == "permit" else kinds[mode](self.path)
        self._turns(file, turn)
        client.stop()

    def _stay(self, file: str) -> None:
        """Hold for a while."""
        time.sleep(self.hold)
        if mode_of(file) == "permit":
            marks = Path(file).with_name(MARKS)
            (marks / Path(file).name).touch()
            eventually(lambda: len(list(marks.iterdir())) >= PERMITS, OP_TIMEOUT)

    def _turns(self, file: str, turn: Callable[[], str]) -> None:
        Path(file).touch()
        lines = [turn() for _ in range(self.count)]
        Path(file).write_text("".join(f"{line}\n" for line in lines))


def mode_of(file: str) -> str:
    """The mode in the name of a file."""
    return file.rpartition("/")[2].split()[1]


def main(kind: str, url: str, path: str, count: str, hold: str, *files: str) -> None:
    """Contend."""
    job = Job(url, path, count, hold)
    if kind == "asyncio":
        asyncio.run(job.in_asyncio(list(files)))
    elif kind == "threads":
        job.in_threads(list(files))
    else:
        job.by_kazoo(list(files))


if __name__ == "__main__":
    threading.current_thread().name = "contender"
    main(*sys.argv[1:])
