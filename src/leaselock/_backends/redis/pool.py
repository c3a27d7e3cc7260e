"""The connections of one client, and the queue for them. One text for threads and asyncio.

Threads have *exclusive* connections: one request at a time, as many connections as there are
requests. Tasks have one *shared* connection to each server, which carries any number of requests.

A task that finds another one connecting queues, first in, first out. Its turn ends with the
connection, with an error, or with the right to connect, which is passed on when its owner is
cancelled. Time spent in the queue does not count against the request.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from leaselock._backends.redis.messages import Connect, Unreachable
from leaselock._core.effects import Call, Signal, Wait

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._backends.redis.messages import Address, Connection, Send

# The least time that a task waits in the queue; without it, one whose time is over would not wait
# at all, even if its turn is next.
LEAST = 0.25
# Seconds after which unused exclusive connections are closed, except for the last few.
UNUSED_FOR = 60.0
KEPT_UNUSED = 4


class QueuedRequest:
    """One task in a queue."""

    __slots__ = ("connection", "error", "left", "signal")

    def __init__(self) -> None:
        self.signal = Signal()
        self.connection: Connection | None = None
        self.error: Exception | None = None
        self.left = False


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
        self._begin()

    def _begin(self) -> None:
        self.generation = object()
        # Exclusive: those in no use, the one used last at the end. Shared: the one of each server.
        self.idle: dict[Address, list[Connection]] = {}
        self.connections: set[Connection] = set()
        self.connecting: set[Address] = set()
        self.queues: dict[Address, deque[QueuedRequest]] = {}

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

    def drop(self, connection: Connection) -> None:
        """A request has ended without its reply."""
        connection.leave()
        self.put(connection)

    def _discard(self, connection: Connection) -> None:
        self.connections.discard(connection)
        connection.close()

    def _serve(self, connection: Connection) -> None:
        """Give a new connection to all that have queued for it; if it is lost, let one connect."""
        if not connection.open:
            self._pass_on(connection.address)
            return
        queue = self.queues.pop(connection.address, deque[QueuedRequest]())
        while (queued := _next(queue)) is not None:
            connection.users += 1
            queued.connection = connection
            queued.signal.set()

    def _pass_on(self, address: Address) -> None:
        """Let the first in the queue connect, unless another task is connecting."""
        queued = None if address in self.connecting else _next(self.queues.get(address, deque()))
        if queued is not None:
            self.connecting.add(address)
            queued.signal.set()

    # --- waiting --------------------------------------------------------------------------------

    async def get(self, address: Address, until: float) -> tuple[Connection, float]:
        """A connection to *address*, and until when the request over it may take."""
        connection = self.take(address)
        if connection is not None:
            return connection, until
        began = self.now()
        if self.shared and address in self.connecting:
            connection = await self._queue(address, until)
        if connection is None:
            connection = await self._connect(address, until)
        return connection, until + self.now() - began if self.shared else until

    async def _queue(self, address: Address, until: float) -> Connection | None:
        """Wait for a connection; None is the right to make it."""
        queued = QueuedRequest()
        self.queues.setdefault(address, deque()).append(queued)
        until = max(until, self.now() + LEAST)
        try:
            if not await Wait(queued.signal, until) and not queued.signal.is_set:
                raise Unreachable(f"{address}: no connection within its time")
            if queued.error is not None:
                raise Unreachable(str(queued.error)) from queued.error
        except BaseException:
            queued.left = True
            if queued.connection is not None:
                self.put(queued.connection)
            elif queued.signal.is_set and queued.error is None:
                self.connecting.discard(address)
                self._pass_on(address)
            raise
        return queued.connection

    async def _connect(self, address: Address, until: float) -> Connection:
        if len(self.connections) >= KEPT_UNUSED and self.on_many and not self.shared:
            await self.on_many()
        connection = self.connection_to(address)
        connection.generation = self.generation
        connection.users = 1
        self.idle.setdefault(address, [])
        self.connections.add(connection)
        self.connecting.add(address)
        try:
            await Call(connection, Connect(), until)
            if connection.generation is not self.generation:
                raise Unreachable("the client was closed meanwhile")
        except BaseException as error:
            self._discard(connection)
            if connection.generation is self.generation:
                self.connecting.discard(address)
                if isinstance(error, Exception):
                    _fail(self.queues.pop(address, deque()), error)
                self._pass_on(address)
            raise
        self.connecting.discard(address)
        if self.shared:
            self.idle[address] = [connection]
            self._serve(connection)
        return connection

    async def exchange(self, address: Address, message: Send, until: float) -> list[Any]:
        """Send a message to *address*; the replies."""
        connection, until = await self.get(address, until)
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
        connections, queues = self.connections, self.queues
        self._begin()
        for connection in connections:
            if self.shared or not connection.users:
                connection.close()
        for queue in queues.values():
            _fail(queue, Unreachable("the client was closed"))

    def after_fork(self) -> None:
        """Let go of all descriptors (`Connection.after_fork`), those in use included."""
        connections = self.connections
        self._begin()
        for connection in connections:
            connection.after_fork()


def _next(queue: deque[QueuedRequest]) -> QueuedRequest | None:
    while queue:
        queued = queue.popleft()
        if not queued.left:
            return queued
    return None


def _fail(queue: deque[QueuedRequest], error: Exception) -> None:
    while (queued := _next(queue)) is not None:
        queued.error = error
        queued.signal.set()
