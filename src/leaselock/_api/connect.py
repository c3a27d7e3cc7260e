"""The store of a client: a URL, an object, the environment variable, or the default."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from leaselock._backends import Opened, open_store
from leaselock._core.backend import Finding
from leaselock._core.validation import refuse

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "LEASELOCK_URL"
DEFAULT = "sqlite:///"


class RedisClient(Protocol):
    """A client of redis-py or valkey-py."""

    def execute_command(self, *words: Any, **options: Any) -> Any:
        """Send a command."""


class ZooKeeperClient(Protocol):
    """A client of kazoo."""

    def add_listener(self, listener: Any) -> Any:
        """Have a function called with each change of the connection."""


class SqlEngine(Protocol):
    """An engine of SQLAlchemy."""

    @property
    def dialect(self) -> Any:
        """Which database it is."""

    def connect(self) -> Any:
        """Open a connection."""


OneStore: TypeAlias = str | os.PathLike[str] | RedisClient | ZooKeeperClient | SqlEngine
Store: TypeAlias = OneStore | Sequence[OneStore] | None


def default_file() -> Finding:
    """What `doctor` says of the file that is used where no store is named."""
    return Finding(
        "ok",
        f"no store was named: this is the default file of this user (uid {os.getuid()}), and other "
        "users have their own",
        f"to share locks with them, name one store for all in {VARIABLE}",
    )


def connect(
    store: object,
    now: Callable[[], float],
    *,
    protocol: str | None = None,
    prefix: str | None = None,
    aio: bool = False,
    **unknown: object,
) -> Opened:
    """The store that *store* names: a URL, or the path of a file; None for $LEASELOCK_URL, else the
    embedded file. *protocol* and *prefix* are used where the URL does not say them.
    """
    refuse("Client", unknown)
    if store is None and VARIABLE not in os.environ:
        opened = open_store(DEFAULT, now, aio=aio, prefix=prefix)
        return opened._replace(protocol=protocol or opened.protocol, notes=(default_file(),))
    if store is None:
        store = os.environ[VARIABLE]
        if not store.strip():
            raise ValueError(
                f"{VARIABLE} is set, but empty: unset it to use the default file, or name a store"
            )
    if isinstance(store, os.PathLike):
        from urllib.parse import quote_from_bytes

        store = f"sqlite:///{quote_from_bytes(os.fsencode(os.path.abspath(store)))}"
    opened = open_store(store, now, aio=aio, prefix=prefix)
    if protocol is None:
        return opened
    said = isinstance(store, str) and "protocol=" in store.partition("?")[2]
    if said and opened.protocol != protocol:
        raise ValueError(
            f"two protocols: the URL says {opened.protocol}, and the argument says {protocol}"
        )
    return opened._replace(protocol=protocol)
