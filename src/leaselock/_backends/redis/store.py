"""Opening a Redis store."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from leaselock._backends import Opened, StoreType
from leaselock._backends.redis.backend import (
    CAPABILITIES,
    WITH_TOKEN_RANGES,
    RedisBackend,
    ScriptedBackend,
)
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.legacy_formats import FORMS, LegacyLock
from leaselock._backends.redis.scripted_lock import HASH, VOTE, ScriptedLock
from leaselock._backends.redis.shared_state import SharedState
from leaselock._core.backend import ALL_MODES
from leaselock.errors import UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable

UNSAFE = 'protocol "{}" is kept for programs that use it: {}. The default, "hash", cannot do that'

SHARING_TOKENS = WITH_TOKEN_RANGES._replace(notifies_contention=True)
PROTOCOLS = {
    HASH: SHARING_TOKENS._replace(min_hold=True, modes=ALL_MODES),
    "string": SHARING_TOKENS,
    **dict.fromkeys(FORMS, CAPABILITIES),
}
OF_PROTOCOL = PROTOCOLS | {VOTE: SHARING_TOKENS}


class RedisStore(SharedState):
    """The protocols of one client on one Redis store."""

    def backend(self, protocol: str) -> RedisBackend:
        """The backend of a protocol, which is known."""
        if protocol in FORMS:
            lock = LegacyLock(self, protocol, time.time)
            return RedisBackend(self, lock, OF_PROTOCOL[protocol])
        replicas, capabilities = self.settings.replicas, OF_PROTOCOL[protocol]
        if replicas:
            # A message may tell of a grant that no replica confirms, and that is given back then.
            capabilities = capabilities._replace(notifies_contention=False, min_hold=False)
        return ScriptedBackend(self, ScriptedLock(self, protocol, replicas), capabilities)

    def voting_locks(self) -> RedisBackend:
        """The locks of one master of a Redlock."""
        return self.backend(VOTE)


def open_store(
    target: object, now: Callable[[], float], *, aio: bool = False, prefix: str | None = None
) -> Opened:
    """The store that a URL, or a client of the user's, names; nothing is connected yet."""
    settings = settings_of(target, aio=aio, prefix=prefix)
    default = STORE.check_protocol(settings.protocol)
    store = RedisStore(settings, now, _connection_type(aio=aio))

    def backend(protocol: str | None) -> RedisBackend:
        chosen = default if protocol is None else STORE.check_protocol(protocol)
        if chosen in FORMS:
            warnings.warn(UNSAFE.format(chosen, FORMS[chosen].danger), UnsafeProtocolWarning, 2)
        return store.backend(chosen)

    return Opened(backend, default, settings.shown, parts=(store,))


def _connection_type(*, aio: bool) -> Any:
    if aio:
        from leaselock._backends.redis.multiplexed import MultiplexedConnection

        return MultiplexedConnection
    from leaselock._backends.redis.blocking import BlockingConnection

    return BlockingConnection


STORE = StoreType(
    "Redis",
    PROTOCOLS,
    open_store,
    prefixes=True,
    conditions=dict.fromkeys(("min_hold", "notifies_contention"), "without replicas"),
    title="Redis or Valkey",
)
