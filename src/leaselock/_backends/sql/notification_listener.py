"""The listener of protocol "lease": it reports which waiters of a client were granted their lock.

    PostgreSQL      a connection that listens; the transaction that grants the lock also notifies
    MySQL, MariaDB  a connection that sleeps; the granting client stores a wake-up and interrupts it
    behind a proxy  no connection of its own: the listener polls for stored wake-ups

The first report is that all waiters should ask again, since earlier notifications were missed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.connection import AwaitNotification, Execute
from leaselock._backends.sql.lock_row import channel
from leaselock._backends.sql.statements import SqlError
from leaselock._core.client.hold import CLIENT_CLOSED
from leaselock._core.contract.backend import WAKE_ALL
from leaselock._core.contract.effects import FOREVER, Call, Signal, Wait
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.executor import Executor
    from leaselock._backends.sql.pool import Pool
    from leaselock._backends.sql.statements import Value

    Wakeups = Awaitable[tuple[str, ...]]

# How often a client polls behind a proxy, and how long a listener of MySQL sleeps, in seconds.
POLL = 0.1
SLEEP = 1.0
CONNECT_TIMEOUT = 10.0
# A statement was ended by `KILL QUERY`, or by a time limit of the server (MariaDB, MySQL).
INTERRUPTED = frozenset(("1317", "1969", "3024"))


class NotificationListener:
    """The listening connections, one for each client name."""

    def __init__(self, pool: Pool, now: Callable[[], float]) -> None:
        self.pool = pool
        self.now = now
        self.reset()

    def reset(self) -> None:
        """Begin without connections."""
        # None behind a proxy, where the pool serves the polls.
        self.connections: dict[str, Connection | None] = {}
        self.ended = Signal()

    async def listen(self, client: str) -> tuple[str, ...]:
        """Wait until waiters of the client should ask again."""
        ended = self.ended
        try:
            if client not in self.connections:
                await self._connect(client)
                return (WAKE_ALL,)
            while not ended.is_set:
                if claims := await self._await(client):
                    return claims
        except BaseException as error:
            self._disconnect(client)
            if ended.is_set and isinstance(error, Exception):
                raise NotApplied(CLIENT_CLOSED) from error
            raise
        raise NotApplied(CLIENT_CLOSED)

    async def _connect(self, client: str) -> None:
        pool, until = self.pool, self.now() + CONNECT_TIMEOUT
        connection = await pool.connect(until)
        if not pool.server.direct:
            pool.discard(connection)
            self.connections[client] = None
            return
        self.connections[client] = connection

        async def subscribe(executor: Executor) -> None:
            if not pool.dialect.interrupts:
                await Call(connection, Execute(f'LISTEN "{channel(client)}"'), until)
            await self._lock_liveness_key(client, executor)

        await pool.converse(connection, subscribe, until)

    async def _await(self, client: str) -> tuple[str, ...]:
        pool, connection = self.pool, self.connections[client]
        if connection is None:
            await Wait(self.ended, self.now() + POLL)
            return await pool.run(wakeups(client), self.now() + CONNECT_TIMEOUT)

        async def sleep(executor: Executor) -> tuple[str, ...]:
            locked = await self._lock_liveness_key(client, executor)
            if pool.dialect.interrupts:
                return await slept(client, SLEEP if locked else POLL, executor)
            until = FOREVER if locked else self.now() + POLL
            return tuple(await Call(connection, AwaitNotification(), until))

        return await pool.converse(connection, sleep, self.now() + CONNECT_TIMEOUT)

    async def _lock_liveness_key(self, client: str, executor: Executor) -> bool:
        """Show that the client listens; False if an earlier session still has the lock."""
        server = self.pool.server
        if client not in server.listening:
            part = ("lock liveness key", {"liveness_key": server.liveness_key(client)})
            (result,) = await executor.execute((part,))
            if not result.rows[0][0]:
                return False
            server.listening.add(client)
        return True

    def _disconnect(self, client: str) -> None:
        self.pool.server.listening.discard(client)
        connection = self.connections.pop(client, None)
        if connection is not None:
            self.pool.discard(connection)

    def wake(self) -> None:
        """End the wait, and every wait to come until `close`."""
        self.ended.set()
        for connection in self.connections.values():
            if connection is not None:
                connection.cut()

    def close(self) -> None:
        """End the connections."""
        for client in list(self.connections):
            self._disconnect(client)
        self.reset()

    def after_fork(self) -> None:
        """In a forked child: the pool lets go of the connections."""
        self.pool.server.listening.clear()
        self.reset()


def wakeups(client: str) -> Callable[[Executor], Wakeups]:
    """Take the wake-ups that were stored for a client."""

    async def take(executor: Executor) -> tuple[str, ...]:
        (stored,) = await executor.execute((("wakeups", {"client": client}),))
        claims = tuple(row[0] for row in stored.rows)
        if claims:
            deleting = (("delete wakeup", {"client": client, "id": claim}) for claim in claims)
            await executor.execute(tuple(deleting))
        return claims

    return take


async def slept(client: str, seconds: float, executor: Executor) -> tuple[str, ...]:
    """Sleep until there is a wake-up or an interrupt, or the time is up.

    A second interrupt may end the statements after the sleep. They are repeated next time.
    """
    try:
        values: dict[str, Value] = {"client": client, "millis": round(seconds * 1000)}
        await executor.execute((("sleep", values),))
    except SqlError as error:
        if error.state not in INTERRUPTED:
            raise
    try:
        return await wakeups(client)(executor)
    except SqlError as error:
        if error.state not in INTERRUPTED:
            raise
        return ()
