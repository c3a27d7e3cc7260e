"""Opening a Redis store, and its lifecycle."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from leaselock.backends import Opened, check_protocol
from leaselock.backends.redis.backend import CAPABILITIES, WITH_TOKEN_RANGES, RedisBackend
from leaselock.backends.redis.executor import Executor
from leaselock.backends.redis.legacy_formats import FORMS, LegacyLock
from leaselock.backends.redis.listener import Listener
from leaselock.backends.redis.pool import Pool
from leaselock.backends.redis.queue_state import QueueState
from leaselock.backends.redis.scripted_lock import VOTE, ScriptedLock
from leaselock.backends.redis.settings import settings_of
from leaselock.errors import UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.redis.messages import Address, Connection
    from leaselock.backends.redis.settings import Settings

PROTOCOLS = ("hash", "string", *FORMS)
UNSAFE = 'protocol "{}" is kept for programs that use it: {}. The default, "hash", cannot do that'


class RedisStore:
    """What the protocols of one client share: connections, topology, waiting claims.

    *connection* makes a connection of the driver's kind, blocking or for asyncio. All methods are
    steps.
    """

    def __init__(self, settings: Settings, now: Callable[[], float], connection: Any) -> None:
        self.settings = settings
        self.now = now
        self.connection = connection
        self.topology = settings.topology_of(now)
        self.queue = QueueState(now)
        self.pool = Pool(self._connection_to, now, shared=connection.SHARED)
        self.listener = Listener(self.pool, self.queue)
        self.executor = Executor(self.topology, self.pool, self.listener, now)

    def _connection_to(self, address: Address) -> Connection:
        made: Connection = self.connection(self.settings, address, self.now, self.listener.drain)
        return made

    def backend(self, protocol: str) -> RedisBackend:
        """The backend of a protocol, which is known."""
        if protocol in FORMS:
            return RedisBackend(self, LegacyLock(self, protocol, time.time), CAPABILITIES)
        replicas = self.settings.replicas
        # A message may tell of a grant that no replica confirms, and that is given back then.
        capabilities = WITH_TOKEN_RANGES._replace(notifies_contention=not replicas)
        return RedisBackend(self, ScriptedLock(self, protocol, replicas), capabilities)

    def voting_locks(self) -> RedisBackend:
        """The locks of one master of a Redlock."""
        return self.backend(VOTE)

    def interrupt(self) -> None:
        """End all waits; every other call has a deadline."""
        self.listener.wake_all()

    def close(self) -> None:
        """Close all connections; the next request connects anew."""
        self.listener.close()
        self.pool.close()
        self._forget()

    def abandon(self) -> None:
        """Let go of the descriptors: after a fork, or when the event loop is closed."""
        self.listener.clear()
        self.pool.abandon()
        self._forget()

    def _forget(self) -> None:
        self.queue.clear()
        self.executor.loading.clear()
        self.topology.forget()


def open_store(target: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store that a URL, or a client of the user's, names; nothing is connected yet."""
    settings = settings_of(target, aio=aio)
    default = check_protocol(settings.protocol, PROTOCOLS, "Redis")
    store = RedisStore(settings, now, _connection_type(aio=aio))

    def backend(protocol: str | None) -> RedisBackend:
        chosen = default if protocol is None else check_protocol(protocol, PROTOCOLS, "Redis")
        if chosen in FORMS:
            warnings.warn(UNSAFE.format(chosen, FORMS[chosen].danger), UnsafeProtocolWarning, 2)
        return store.backend(chosen)

    return Opened(backend, default, {}, settings.shown, native=aio, stores=(store,))


def _connection_type(*, aio: bool) -> Any:
    if aio:
        from leaselock.backends.redis.multiplexed import MultiplexedConnection

        return MultiplexedConnection
    from leaselock.backends.redis.blocking import BlockingConnection

    return BlockingConnection
