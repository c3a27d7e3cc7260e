"""The lower bound for leaselock with asyncio on Redis: its two scripts by a bare client.

One connection sends what the tasks request in one iteration of the event loop together, and gives
each reply to the task that waits for it. The commands are packed in advance.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import hiredis
from testkit.servers.resp import packed

from benchmarks.contestants.asyncio_contestant import AsyncioContestant
from benchmarks.contestants.bare_redis import commands
from leaselock._backends.redis.scripts import ACQUIRE, RELEASE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class Connection(asyncio.Protocol):
    """Requests in order, and a future for each reply."""

    transport: asyncio.WriteTransport

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.reader = hiredis.Reader()
        self.pending: deque[asyncio.Future[Any]] = deque()
        self.unsent: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def send(self, command: bytes) -> asyncio.Future[Any]:
        """Send a command at the end of this iteration; return the future of its reply."""
        if not self.unsent:
            self.loop.call_soon(self._flush)
        self.unsent.append(command)
        future = self.loop.create_future()
        self.pending.append(future)
        return future

    def _flush(self) -> None:
        self.transport.write(b"".join(self.unsent))
        self.unsent.clear()

    def data_received(self, data: bytes) -> None:
        """Set the results of the replies that are complete."""
        self.reader.feed(data)
        while (reply := self.reader.gets()) is not False:
            future = self.pending.popleft()
            if not future.done():
                future.set_result(reply)


class BareLock:
    """A lock that is always free."""

    def __init__(self, connection: Connection, name: str) -> None:
        self.connection = connection
        self.acquire, self.release = commands(name)

    async def __aenter__(self) -> None:
        reply = await self.connection.send(self.acquire)
        assert reply[0] == 1, "this contestant supports one task for each lock"

    async def __aexit__(self, *_: object) -> None:
        assert await self.connection.send(self.release) == 1, "the lock was not held"


class Bare(AsyncioContestant):
    """No errors, no time limits, no renewal, no record of what is held."""

    version: ClassVar[str] = hiredis.__version__

    @staticmethod
    @asynccontextmanager
    async def opened(url: str) -> AsyncIterator[Callable[[str], BareLock]]:
        """Open one connection."""
        server = urlsplit(url)
        loop = asyncio.get_running_loop()
        address = (server.hostname or "", server.port or 0)
        _, connection = await loop.create_connection(Connection, *address)
        for script in (ACQUIRE, RELEASE):
            await connection.send(packed("SCRIPT", "LOAD", script.text))
        yield lambda name: BareLock(connection, name)
        connection.transport.close()
