"""Opening a ZooKeeper store: from a URL, or with the settings of a kazoo client."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from leaselock._backends import Opened, StoreType
from leaselock._backends.zookeeper.client_settings import target_of
from leaselock._backends.zookeeper.connection import BlockingConnection, Connection
from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.session_backend import CAPABILITIES
from leaselock._backends.zookeeper.single import SingleBackend
from leaselock._backends.zookeeper.url import Target, parsed
from leaselock._core.contract.backend import ALL_MODES
from leaselock.errors import UnsafeProtocolWarning

if TYPE_CHECKING:
    from collections.abc import Callable

HERD = (
    'protocol "single" wakes every waiter at each release (thundering herd), serves them in no '
    'order, and after a forced release may free the next holder\'s lock: use the default, "queue"'
)


def open_store(named: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of a URL, or of the user's kazoo client."""
    target = parsed(named) if isinstance(named, str) else target_of(named)
    connection = _connection(target, now, aio)

    def backend(protocol: str | None) -> QueueBackend | SingleBackend:
        if STORE.check_protocol(protocol) == "queue":
            return QueueBackend(connection, target.root, target.mark, now, target.extra)
        warnings.warn(HERD, UnsafeProtocolWarning, stacklevel=2)
        return SingleBackend(connection, target.root, now)

    return Opened(backend, target.protocol, target.shown, parts=(connection,))


def _connection(target: Target, now: Callable[[], float], aio: bool) -> Connection:
    if not aio:
        return BlockingConnection(target, now)
    from leaselock._backends.zookeeper.asyncio_connection import AsyncioConnection

    return AsyncioConnection(target, now)


STORE = StoreType(
    "ZooKeeper",
    {"queue": CAPABILITIES._replace(modes=ALL_MODES), "single": CAPABILITIES},
    open_store,
    conditions=dict.fromkeys(("update", "permits"), "with kazoo's names"),
)
