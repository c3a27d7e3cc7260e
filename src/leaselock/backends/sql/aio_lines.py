"""Connections for asyncio: the loop itself asks PostgreSQL, and a thread each asks MySQL.

Their words and results are those of the blocking ones.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from leaselock.backends.sql import mysql, postgres
from leaselock.backends.sql.postgres import READ, WRITE
from leaselock.backends.sql.script import SqlError, forget, remember

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future

    from leaselock.backends.sql.script import Dialect, Result, Script
    from leaselock.backends.sql.url import Target


async def asked(line: Any, dialect: Dialect, script: Script, until: float) -> list[Result]:
    """Have a line carry out a script; one result for each part."""
    text, added = dialect.text(script, line.kept)
    try:
        results = await line.run(text, until)
    except SqlError:
        forget(line)
        raise
    return dialect.grouped(script, remember(line, added, results))


class PostgresLine:
    """A connection to PostgreSQL, asked by one task at a time."""

    def __init__(self, blocking: postgres.Line) -> None:
        self.blocking = blocking
        self.number = blocking.number
        self.backend = 0
        self.worn = False
        self.kept: set[str] | None = None
        self.fresh = blocking.fresh
        self.close = blocking.close
        self.abandon = blocking.abandon
        self.cut = blocking.cut
        self.fileno = blocking.fileno

    @classmethod
    async def connect(cls, target: Target, now: Callable[[], float], until: float) -> PostgresLine:
        """A new one. A thread does it, since libpq looks up names while nothing else can run."""
        worker = ThreadPoolExecutor(1, "leaselock-connect")
        blocking = await _made(worker, postgres.Line, target, now, until)
        worker.shutdown(wait=False)
        return cls(blocking)

    @property
    def broken(self) -> bool:
        """Whether it can never be used again."""
        return self.blocking.broken

    async def run(self, text: str, until: float) -> list[Result]:
        """Have a script carried out."""
        steps = self.blocking.exchange(text)
        done = False
        try:
            events = next(steps)
            while True:
                happened = await ready(self.fileno(), events, self.blocking.left(until))
                if not happened:
                    raise self.blocking.silent()
                events = steps.send(happened)
        except StopIteration as stop:
            done = True
            results: list[Result] = stop.value
            return results
        except SqlError:
            done = True
            raise
        finally:
            if not done:
                self.blocking.broken = True

    async def wait(self, until: float) -> list[str]:
        """What is said on the channels, when there is something, or the time is up."""
        words = self.blocking.heard()
        if not words and await ready(self.fileno(), READ, self.blocking.left(until)):
            words = self.blocking.heard()
        return words

    def listen(self, channel: str) -> str:
        """The statement that has the server send what is said on a channel."""
        return self.blocking.listen(channel)


async def _made(
    worker: Executor, line: type[Any], target: Target, now: Callable[[], float], until: float
) -> Any:
    """A blocking line, connected in a thread that is its own: the loop's may all be busy."""
    making = worker.submit(line, target, now, until)
    try:
        return await asyncio.wrap_future(making)
    except BaseException:
        # One that comes too late for its task is closed.
        making.add_done_callback(_close)
        worker.shutdown(wait=False)
        raise


def _close(made: Future[Any]) -> None:
    if not made.cancelled() and made.exception() is None:
        made.result().close()


async def ready(descriptor: int, events: int, patience: float) -> int:
    """Wait for a socket; what it is ready for, 0 when the time is up."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[int] = loop.create_future()

    def settle(happened: int) -> None:
        if not future.done():
            future.set_result(happened)

    timer = loop.call_later(patience, settle, 0)
    try:
        if events & READ:
            loop.add_reader(descriptor, settle, READ)
        if events & WRITE:
            loop.add_writer(descriptor, settle, WRITE)
        return await future
    finally:
        timer.cancel()
        loop.remove_reader(descriptor)
        if events & WRITE:
            loop.remove_writer(descriptor)


class MysqlLine:
    """A connection to MySQL or MariaDB, asked by one task at a time, each in its own thread."""

    def __init__(self, blocking: mysql.Line, worker: Executor) -> None:
        self.blocking = blocking
        self.number = blocking.number
        self.backend = 0
        self.worn = False
        self.kept: set[str] | None = None
        self.fresh = blocking.fresh
        self.cut = blocking.cut
        self.fileno = blocking.fileno
        self.worker = worker

    @classmethod
    async def connect(cls, target: Target, now: Callable[[], float], until: float) -> MysqlLine:
        """A new one."""
        worker = ThreadPoolExecutor(1, "leaselock-line")
        return cls(await _made(worker, mysql.Line, target, now, until), worker)

    @property
    def broken(self) -> bool:
        """Whether it can never be used again."""
        return self.blocking.broken

    async def run(self, text: str, until: float) -> list[Result]:
        """Have a script carried out."""
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self.worker, self.blocking.run, text, until)
        except asyncio.CancelledError:
            # The thread may still be at it; what it gets is nobody's any more.
            self.blocking.broken = True
            self.cut()
            raise

    def close(self) -> None:
        """End the session; a thread that waits for an answer is woken, and closes it."""
        self.blocking.broken = True
        self.cut()
        self.worker.submit(self.blocking.close)
        self.worker.shutdown(wait=False)

    def abandon(self) -> None:
        """In a forked child: let go of the descriptor, without a word to the server."""
        self.blocking.abandon()
