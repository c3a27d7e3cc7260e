"""Opening a Redis store."""

from __future__ import annotations

import time
import warnings
from typing import TYPE_CHECKING, Any

from leaselock._backends import Opened, StoreType
from leaselock._backends.redis.backend import (
    CAPABILITIES,
    RedisBackend,
)
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.legacy_formats import FORMS, LegacyBackend
from leaselock._backends.redis.scripted_backend import HASH, VOTE, ScriptedBackend
from leaselock._backends.redis.shared_state import SharedState
from leaselock._core.contract.backend import ALL_MODES
from leaselock.errors import UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable

UNSAFE = 'protocol "{}" is kept for programs that use it: {}. The default, "hash", cannot do that'
# Names of this machine.
LOCAL = ("localhost", "127.0.0.1", "::1")

PROTOCOLS = {
    HASH: CAPABILITIES._replace(min_hold=True, modes=ALL_MODES),
    "string": CAPABILITIES,
    **dict.fromkeys(FORMS, CAPABILITIES),
}
OF_PROTOCOL = PROTOCOLS | {VOTE: CAPABILITIES}


class RedisStore(SharedState):
    """The protocols of one client on one Redis store."""

    def backend(self, protocol: str) -> RedisBackend:
        """The backend of a protocol, which is known."""
        if protocol in FORMS:
            return LegacyBackend(self, protocol, time.time, OF_PROTOCOL[protocol])
        replicas, capabilities = self.settings.replicas, OF_PROTOCOL[protocol]
        if replicas:
            # A message may tell of a grant that no replica confirms, and that is given back then.
            capabilities = capabilities._replace(min_hold=False)
        return ScriptedBackend(self, protocol, replicas, capabilities)

    def voting_locks(self) -> RedisBackend:
        """The locks of one master of a Redlock."""
        return self.backend(VOTE)

    def server_addresses(self) -> frozenset[str]:
        """Where its servers listen, as far as the URL says: each master of a Redlock has another.
        The same sentinels may watch several masters, by other names.
        """
        service, addresses = self.settings.service, self.settings.addresses
        local = (each._replace(host=LOCAL[0]) if each.host in LOCAL else each for each in addresses)
        return frozenset(f"{each}/{service}" for each in local)


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
    conditions={"min_hold": "without replicas"},
    title="Redis or Valkey",
)
