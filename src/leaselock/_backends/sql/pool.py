"""The connections that serve requests: each is used by one operation at a time.

Invariant: a connection returns to the idle ones only if all answers were read and it is outside a
transaction. Otherwise it is closed (hazard D7). In asyncio, where a statement was cancelled that is
a transaction of its own, the next request reads its answer and uses the connection: the release of
a cancelled claim does not have to connect anew. Any other cancelled request costs one connection.

Requests that keep or release a hold never wait for connections that acquiring ones use (hazard D6).
There are few connections: requests for one lock wait for one another in the server, and many of
them at once make it slower.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.sql.connection import Connect, Receive
from leaselock._backends.sql.executor import Executor
from leaselock._backends.sql.server_info import ServerInfo, initialize, refusal
from leaselock._backends.sql.statements import MALFORMED, SqlError
from leaselock._core.client.concurrency_limit import ConcurrencyLimit
from leaselock._core.contract.backend import PoolExhausted
from leaselock._core.contract.effects import Call
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.url import Target

T = TypeVar("T")
# A connection beyond the size of the pool, for requests that keep or release a hold.
SPARE = 1
# For how long the answer to a cancelled request is waited for, in seconds.
RESUMING = 0.25


class Pool:
    """The connections of one client; *make* creates a connection that is not established yet."""

    def __init__(
        self, target: Target, make: Callable[[], Connection], now: Callable[[], float]
    ) -> None:
        self.target = target
        self.make = make
        self.now = now
        self.server = ServerInfo(target)
        self.dialect = self.server.dialect
        self.reset()

    def reset(self) -> None:
        """Begin without connections."""
        self.connections: set[Connection] = set()
        self.idle: list[Connection] = []
        # Their last request was cancelled, and its answer was not read.
        self.resumable: list[Connection] = []
        self.limit = ConcurrencyLimit(self.target.pool, SPARE)

    async def run(
        self,
        work: Callable[[Executor], Awaitable[T]],
        until: float,
        *,
        urgent: bool = True,
        expected: bool = False,
        repeatable: bool = False,
        bare: bool = False,
    ) -> T:
        """Run one operation on any connection.

        An *expected* one, by a waiter that may have been granted its lock, gets a connection before
        the others that are not *urgent*. A *repeatable* operation is repeated if a connection turns
        out to have ended while it was idle. A *bare* one gets a new connection that has not looked
        at the tables, which is closed afterwards.
        """
        limit = self.limit
        slot = limit.enter_now(urgent)
        if slot is None:
            # Half of the time is left for the server: a request that gets its connection at the
            # last moment could only fail, and would cost the connection.
            slot = await limit.enter((self.now() + until) / 2, urgent, expected)
        if slot is None:
            raise PoolExhausted(f"all connections to {self.target.shown} were busy")
        try:
            unknown: OutcomeUnknown | None = None
            while True:
                connection: Connection | None = None
                try:
                    try:
                        connection = self._idle(bare) or await self._resumed(until, bare)
                        connection = connection or await self.connect(until, bare)
                        return await self.converse(connection, work, until)
                    finally:
                        if connection is not None:
                            self._put_back(connection, bare)
                except OutcomeUnknown as error:
                    # The next connection may have ended, too; in the end a new one is used.
                    if not (repeatable and connection is not None and connection.reused):
                        raise
                    if connection.now() >= until:
                        raise  # it did not end: the server has not answered in time
                    unknown = error
                except NotApplied:
                    # This attempt was not applied, but an earlier one may have been.
                    if unknown is not None:
                        raise unknown from None
                    raise
        finally:
            limit.leave(slot)

    async def converse(
        self, connection: Connection, work: Callable[[Executor], Awaitable[T]], until: float
    ) -> T:
        """Run an operation on a connection."""
        try:
            return await work(Executor(connection, self.dialect, until))
        except SqlError as error:
            raise refusal(error, self.server) from error
        except MALFORMED as error:
            # The statements may have been executed, and the state of the session is not known.
            self.discard(connection)
            raise malformed(error) from error

    def _idle(self, bare: bool) -> Connection | None:
        while self.idle and not bare:
            connection = self.idle.pop()
            if connection.fresh():
                return connection
            self.discard(connection)
        return None

    async def _resumed(self, until: float, bare: bool) -> Connection | None:
        """A connection whose last request was cancelled, once its answer was read. The server may
        take long for it, so that connecting anew is better.
        """
        while self.resumable and not bare:
            connection = self.resumable.pop()
            try:
                with suppress(SqlError, OutcomeUnknown):
                    await Call(connection, Receive(), min(until, connection.now() + RESUMING))
            except BaseException:
                self.discard(connection)
                raise
            if connection.fresh():
                connection.reused = True
                return connection
            self.discard(connection)
        return None

    async def connect(self, until: float, bare: bool = False) -> Connection:
        """A new connection that is ready for use."""
        connection = self.make()
        self.connections.add(connection)

        async def initialized(executor: Executor) -> None:
            await initialize(self.server, connection, executor, bare)

        try:
            await Call(connection, Connect(), until)
            await self.converse(connection, initialized, until)
        except BaseException:
            self.discard(connection)
            raise
        return connection

    def discard(self, connection: Connection) -> None:
        """Close a connection."""
        # In this order, for a thread that forks meanwhile.
        connection.close()
        self.connections.discard(connection)

    def _put_back(self, connection: Connection, bare: bool) -> None:
        # One that is not listed any more was closed with the pool, or belongs to the parent.
        if bare or connection not in self.connections:
            self.discard(connection)
        elif connection.usable:
            connection.reused = True
            self.idle.append(connection)
        elif connection.resumable:
            self.resumable.append(connection)
        else:
            self.discard(connection)

    def close(self) -> None:
        """Close all connections."""
        for connection in self.connections:
            connection.close()
        self.reset()

    def after_fork(self) -> None:
        """In a forked child: let go of the connections of the parent."""
        connections = self.connections
        self.reset()
        for connection in connections:
            connection.after_fork()


def malformed(error: Exception) -> OutcomeUnknown:
    """The error for an answer that cannot be understood."""
    return OutcomeUnknown(
        f"an answer of the database makes no sense: {type(error).__name__}: {error}", "refused"
    )


def once(script: Any) -> Callable[[Executor], Awaitable[Any]]:
    """An operation of one script."""
    return lambda executor: executor.execute(script)
