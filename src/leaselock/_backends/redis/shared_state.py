"""What the protocols of one client share, and its lifecycle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends import chance
from leaselock._backends.redis.executor import Executor
from leaselock._backends.redis.keys import Keys, index_of, keys_of, slot_of
from leaselock._backends.redis.listener import Listener
from leaselock._backends.redis.pool import Pool
from leaselock._backends.redis.queue_state import QueueState
from leaselock._backends.redis.settings import LOGIN
from leaselock._core.contract.lifecycle import Lifecycle

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.redis.messages import Address, Connection
    from leaselock._backends.redis.settings import Settings


class SharedState(Lifecycle):
    """What the protocols of one client share: connections, topology, waiting claims.

    *connection* makes a connection of the driver's kind, blocking or for asyncio. All methods are
    steps.
    """

    def __init__(
        self,
        settings: Settings,
        now: Callable[[], float],
        connection: Any,
        random: Callable[[], float] = chance,
    ) -> None:
        self.settings = settings
        self.now = now
        self.connection = connection
        self.topology = settings.topology_of(now)
        self.queue = QueueState(now)
        self.pool = Pool(self._connection_to, now, shared=connection.SHARED)
        self.listener = Listener(self.pool, self.queue, now)
        self.executor = Executor(self.topology, self.pool, self.listener, now, random)

    def _connection_to(self, address: Address) -> Connection:
        made: Connection = self.connection(self.settings, address, self.now, self.listener.drain)
        return made

    def without_login(self) -> SharedState:
        """The same store, of a client that does not say who it is."""
        parameters = {
            word: value for word, value in self.settings.parameters.items() if word not in LOGIN
        }
        settings = self.settings._replace(parameters=parameters)
        return SharedState(settings, self.now, self.connection, self.executor.random)

    def keys_of(self, name: str) -> Keys:
        """The keys of the lock *name*."""
        return keys_of(name, self.settings.prefix, self.topology.divided)

    def index_of(self, lock: str) -> str:
        """The index that the key of a lock is in."""
        return index_of(slot_of(lock) if self.topology.divided else None, self.settings.prefix)

    def wake(self) -> None:
        """End all waits; every other call has a deadline."""
        self.listener.end_waits()

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self.listener.close()
        self.pool.close()
        self._forget()

    def after_fork(self) -> None:
        """Let go of the descriptors: after a fork, or when the event loop is closed."""
        self.listener.clear()
        self.pool.after_fork()
        self._forget()

    def _forget(self) -> None:
        self.queue.clear()
        self.executor.loading.clear()
        self.executor.search = None
        self.topology.forget()
