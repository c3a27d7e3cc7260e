"""The connections of one client. One text for threads and asyncio.

Threads have *exclusive* connections: one request at a time, as many connections as there are
requests. Tasks have one *shared* connection to each server, which carries any number of requests.

A task that finds another one connecting waits for its `Attempt`. That time does not count against
the request.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.messages import Connect, Unreachable
from leaselock._core.contract.effects import Call, Signal, Sleep, Wait
from leaselock.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.redis.messages import Address, Connection, Send

# The least time that a task waits for another one's attempt; without it, one whose time is over
# would not wait at all, even if the attempt ends next.
LEAST = 0.25
# Seconds after which unused exclusive connections are closed, except for the last few.
UNUSED_FOR = 60.0
KEPT_UNUSED = 4
# Seconds after which the name of a server is looked up again, while that server refuses writes.
NAME_LASTS = 1.0
# Seconds between two attempts to connect to a server that has no connection left.
PAUSE = 0.005


class Attempt:
    """Something that one request does for all: to connect, or to find a server. The others wait for
    its end. If it fails, they fail with its error; if it is cancelled, one of them tries.
    """

    __slots__ = ("ended", "error")

    def __init__(self) -> None:
        self.ended = Signal()
        self.error: Exception | None = None

    async def wait(self, until: float, late: str) -> None:
        """Wait for its end; raise its error if it fails, or `Unreachable` with the text *late* by
        then.
        """
        if not await Wait(self.ended, until) and not self.ended.is_set:
            raise Unreachable(late)
        if isinstance(self.error, StoreError):
            raise type(self.error)(str(self.error), self.error.reason) from self.error
        if self.error is not None:
            raise Unreachable(str(self.error)) from self.error


class Pool:
    """The connections of one client."""

    def __init__(
        self,
        connection_to: Callable[[Address], Connection],
        now: Callable[[], float],
        *,
        shared: bool,
    ) -> None:
        self.connection_to = connection_to
        self.now = now
        self.shared = shared
        # Has `close_unused` called from time to time, once there are more than are kept.
        self.on_many: Callable[[], Awaitable[None]] | None = None
        # Ends a wait that has an exclusive connection to a server; returns whether there was one.
        self.end_wait: Callable[[Address], bool] | None = None
        self._begin()

    def _begin(self) -> None:
        self.generation = object()
        # Exclusive: those in no use, the one used last at the end. Shared: the one of each server.
        self.idle: dict[Address, list[Connection]] = {}
        self.connections: set[Connection] = set()
        # Shared: the servers that a task connects to.
        self.attempts: dict[Address, Attempt] = {}
        # Exclusive: how many requests wait for a connection that a waiter has been told to close.
        self.needed: Counter[Address] = Counter()

    # --- steps ----------------------------------------------------------------------------------

    def take(self, address: Address) -> Connection | None:
        """A connection that can be used at once, if there is one."""
        idle = self.idle.get(address)
        while idle:
            connection = idle[-1]
            if not connection.is_usable():
                self._discard(idle.pop())
                continue
            if not self.shared:
                idle.pop()
            connection.users += 1
            return connection
        return None

    def take_idle(self, connection: Connection) -> bool:
        """Take this exclusive connection if it is in no use, and can be used."""
        if connection.users or connection not in self.idle.get(connection.address, ()):
            return False
        self.idle[connection.address].remove(connection)
        if not connection.is_usable():
            self._discard(connection)
            return False
        connection.users += 1
        return True

    def is_idle(self, connection: Connection) -> bool:
        """Whether something may be sent without a request."""
        return self.shared or not connection.users

    def put(self, connection: Connection) -> None:
        """A request is done: an exclusive connection is free for the next."""
        connection.users -= 1
        if not connection.open or connection.generation is not self.generation:
            self._discard(connection)
        elif not self.shared:
            if connection.pushes:
                connection.pushes.clear()
            self.idle[connection.address].append(connection)
            if len(self.connections) > KEPT_UNUSED:
                self.close_unused()

    def close_unused(self) -> bool:
        """Close the exclusive connections that nothing has used for a while; says whether there
        still are more than are kept.
        """
        latest = self.now() - UNUSED_FOR
        for idle in self.idle.values():
            while len(idle) > KEPT_UNUSED and idle[0].last_used < latest and not self.shared:
                self._discard(idle.pop(0))
        return not self.shared and len(self.connections) > KEPT_UNUSED

    def look_up(self, address: Address) -> None:
        """The server at *address* has become a replica, and its name may mean another one by now:
        close the connections to it, those of waiters included, unless they are new. Their requests
        would be refused.
        """
        latest = self.now() - NAME_LASTS
        for connection in list(self.connections):
            if connection.address == address and connection.began <= latest:
                connection.close()

    def drop(self, connection: Connection) -> None:
        """A request has ended without its reply."""
        connection.leave()
        self.put(connection)

    def _discard(self, connection: Connection) -> None:
        self.connections.discard(connection)
        connection.close()

    # --- waiting --------------------------------------------------------------------------------

    async def get(self, address: Address, until: float) -> tuple[Connection, float]:
        """A connection to *address*, and until when the request over it may take."""
        connection = self.take(address)
        if connection is not None:
            return connection, until
        if not self.shared:
            if len(self.connections) >= KEPT_UNUSED and self.on_many:
                await self.on_many()
            return await self._connect(address, until), until
        began = self.now()
        while connection is None and (attempt := self.attempts.get(address)) is not None:
            late = f"{address}: no connection within its time"
            await attempt.wait(max(until, began + LEAST), late)
            connection = self.take(address)
        if connection is None:
            connection = await self._connect_for_all(address, until)
        return connection, until + self.now() - began

    async def _get_first(self, address: Address, until: float) -> tuple[Connection, float]:
        """The same for a request that is not a waiter's: it may renew or release a lock. If no more
        connections can be made, although waiters have some, one of them gives up its own.
        """
        try:
            return await self.get(address, until)
        except Unreachable:
            if self.end_wait is None or not self.end_wait(address):
                raise
        self.needed[address] += 1
        until_there = min(until, self.now() + LEAST)
        try:
            while True:
                # The server does not say when it has noticed.
                await Sleep(self.now() + PAUSE)
                try:
                    return await self.get(address, until)
                except Unreachable:
                    if self.now() >= until_there:
                        raise
        finally:
            self.needed[address] -= 1

    async def get_to_wait(self, address: Address, until: float) -> tuple[Connection, float]:
        """A connection for a waiter, which lets other requests go first."""
        if self.needed[address]:
            raise Unreachable(f"{address}: no connection is left for a waiter")
        return await self.get(address, until)

    async def _connect_for_all(self, address: Address, until: float) -> Connection:
        attempt = self.attempts[address] = Attempt()
        try:
            connection = await self._connect(address, until)
            self.idle[address] = [connection]
        except Exception as error:
            attempt.error = error
            raise
        finally:
            if self.attempts.get(address) is attempt:
                del self.attempts[address]
            attempt.ended.set()
        return connection

    async def _connect(self, address: Address, until: float) -> Connection:
        connection = self.connection_to(address)
        connection.generation = self.generation
        connection.users = 1
        self.idle.setdefault(address, [])
        self.connections.add(connection)
        try:
            await Call(connection, Connect(), until)
            if connection.generation is not self.generation:
                raise Unreachable("the client was closed meanwhile")
        except BaseException:
            self._discard(connection)
            raise
        return connection

    async def exchange(self, address: Address, message: Send, until: float) -> list[Any]:
        """Send a message to *address*; the replies."""
        connection, until = await self._get_first(address, until)
        try:
            replies: list[Any] = await Call(connection, message, until)
        except BaseException:
            self.drop(connection)
            raise
        self.put(connection)
        return replies

    # --- lifecycle ------------------------------------------------------------------------------

    def close(self) -> None:
        """Close all connections; an exclusive one that is in use is closed by its last user."""
        connections, attempts = self.connections, self.attempts
        self._begin()
        for connection in connections:
            if self.shared or not connection.users:
                connection.close()
        for attempt in attempts.values():
            attempt.error = Unreachable("the client was closed")
            attempt.ended.set()

    def after_fork(self) -> None:
        """Let go of all descriptors (`Connection.after_fork`), those in use included."""
        connections = self.connections
        self._begin()
        for connection in connections:
            connection.after_fork()
