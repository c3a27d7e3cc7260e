"""The store of a client: a URL, an object, the environment variable, or the default."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from leaselock._backends import Opened, built_in, open_store
from leaselock._backends.url import EMBEDDED, OF_PROCESS, may_hold_secret, scheme_of
from leaselock._core.client.validation import refuse
from leaselock._core.contract.backend import Finding

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "LEASELOCK_URL"
# The path of a file with the URL, such as a secret of Docker, Kubernetes or systemd.
FILE_VARIABLE = "LEASELOCK_URL_FILE"
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


class AwsClient(Protocol):
    """A client of boto3, or a table of its resource for DynamoDB."""

    @property
    def meta(self) -> Any:
        """What it knows of the service, and how to reach it."""


OneStore: TypeAlias = str | os.PathLike[str] | RedisClient | ZooKeeperClient | SqlEngine | AwsClient
Store: TypeAlias = OneStore | Sequence[OneStore] | None


__all__ = [
    "EMBEDDED",
    "OF_PROCESS",
    "Store",
    "built_in",
    "connect",
    "may_hold_secret",
    "named_by_environment",
    "scheme_of",
    "url_in_file",
    "with_absolute_path",
]


def _user_id() -> str:
    return f" (uid {os.getuid()})" if hasattr(os, "getuid") else ""


def default_file() -> Finding:
    """What `doctor` says of the file that is used where no store is named."""
    return Finding(
        "ok",
        f"no store was named: this is the default file of this user{_user_id()}, and other "
        "users have their own",
        f"to share locks with them, name one store for all in {VARIABLE}",
    )


def url_in_file(path: str) -> str:
    """Return the URL in a file, without the white space around it. ValueError if there is none; the
    message does not quote the file, which may hold a password.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            url = file.read().strip()
    except OSError as error:
        raise ValueError(
            f"cannot read the URL of the store from {path!r}: {error.strerror}"
        ) from None
    except ValueError:
        # Its text quotes what it could not decode.
        raise ValueError(
            f"the file {path!r} has no URL of a store: it is not text in UTF-8"
        ) from None
    if not url or len(url.splitlines()) > 1:
        what = "more than one line" if url else "empty"
        raise ValueError(f"the file {path!r} has no URL of a store: it is {what}")
    return url


def with_absolute_path(url: str) -> str:
    """Return the URL for a process in another directory: the path of a file may be relative."""
    path = url[len(DEFAULT) :]
    given = not path.startswith("?") and path
    if not url.lower().startswith(DEFAULT) or not given or os.path.isabs(path):
        return url
    from urllib.parse import quote

    return f"{DEFAULT}{quote(os.getcwd())}/{path}"


def named_by_environment() -> str | None:
    """Return the URL that the environment variables name; None where they are unset. ValueError if
    they name none, or name two.
    """
    url, path = os.environ.get(VARIABLE), os.environ.get(FILE_VARIABLE)
    if url is not None and path is not None:
        raise ValueError(f"both {VARIABLE} and {FILE_VARIABLE} are set: unset one of them")
    if path is not None:
        if not path:
            raise ValueError(f"{FILE_VARIABLE} is set, but empty: unset it, or name a file")
        return url_in_file(path)
    if url is not None and not url.strip():
        raise ValueError(
            f"{VARIABLE} is set, but empty: unset it to use the default file, or name a store"
        )
    return url


def connect(
    store: object,
    now: Callable[[], float],
    *,
    protocol: str | None = None,
    prefix: str | None = None,
    aio: bool = False,
    **unknown: object,
) -> Opened:
    """The store that *store* names: a URL, or the path of a file; None for the one that the
    environment names, else the embedded file. *protocol* and *prefix* are used where the URL does
    not say them.
    """
    refuse("Client", unknown)
    if store is None:
        store = named_by_environment()
    if store is None:
        opened = open_store(DEFAULT, now, aio=aio, prefix=prefix)
        return opened._replace(protocol=protocol or opened.protocol, notes=(default_file(),))
    if isinstance(store, os.PathLike):
        from urllib.parse import quote_from_bytes

        store = f"{DEFAULT}{quote_from_bytes(os.fsencode(os.path.abspath(store)))}"
    opened = open_store(store, now, aio=aio, prefix=prefix)
    if protocol is None:
        return opened
    said = isinstance(store, str) and "protocol=" in store.partition("?")[2]
    if said and opened.protocol != protocol:
        raise ValueError(
            f"two protocols: the URL says {opened.protocol}, and the argument says {protocol}"
        )
    return opened._replace(protocol=protocol)
