"""Which store serves a URL, or a client that the user has.

A store is described by one `StoreType`. Those of this package are in a table by the schemes of
their URLs; others are found by the entry points of the group ``leaselock.stores``, whose names are
schemes. A store is loaded when its scheme is used, and its client library not before that.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.libraries import check_version, library
from leaselock._backends.url import EMBEDDED, check_form, parse, with_user, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.url import StoreURL
    from leaselock._core.backend import Backend, Finding
    from leaselock._core.lifecycle import Lifecycle, Node


class Opened(NamedTuple):
    """A store, ready to be asked; nothing has been asked yet."""

    backend: Callable[[str | None], Backend]
    """The way of locking that a protocol names (None: the store's default); else ValueError."""
    protocol: str
    """The default: what the URL says, else the store's."""
    shown: str
    """The URL without its secrets."""
    typed: str = ""
    """The URL for a command: with the user, without the password. Empty where there is no user."""
    stores: tuple[Lifecycle, ...] = ()
    """What the driver interrupts, closes and abandons."""
    blocking: tuple[Node, ...] = ()
    """Nodes whose calls block; for asyncio the driver calls each in a thread of its own."""
    notes: tuple[Finding, ...] = ()
    """What `doctor` says of the choice of the store."""


class StoreType(NamedTuple):
    """What a store says of itself.

    >>> STORE = StoreType("a file", ("queue",), open_store, options=("poll",))
    """

    name: str
    """How messages name it."""
    protocols: tuple[str, ...]
    """Its ways of locking, the default first: each excludes only itself."""
    open: Callable[..., Opened]
    """Called with the URL, or a client of the user's; a function that reads the clock of all
    deadlines; and *aio*, whether the calls are awaited. It opens no connection yet. ValueError for
    a URL that is not valid.
    """
    options: tuple[str, ...] = ()
    """The options of its URL besides ``protocol``, where `protocol_of` checks them."""
    prefixes: bool = False
    """Whether the keys of its locks may have a prefix: *open* takes ``prefix=``."""

    def protocol_of(self, url: StoreURL) -> str:
        """The protocol of ``?protocol=``, or the default; ValueError for an unknown option."""
        url.check_options(("protocol", *self.options), self.name)
        return self.check_protocol(url.options.get("protocol"))

    def check_protocol(self, wanted: str | None) -> str:
        """The protocol to use; ValueError for an unknown one."""
        return check_protocol(wanted, self.protocols, self.name)


# What some stores cannot do, and which can: messages name them.
SHARING = (
    "memory, SQLite, PostgreSQL, MySQL by lease and row, Redis by hash, ZooKeeper by queue, etcd, "
    "Kubernetes, DynamoDB and S3 have them"
)
ABLE = {
    "shared": SHARING,
    "update": (
        "memory, SQLite, PostgreSQL and MySQL by lease, etcd, Kubernetes, DynamoDB and S3 have it"
    ),
    "permits": (
        "memory, SQLite, PostgreSQL and MySQL by lease, Redis by hash, ZooKeeper by queue with "
        "kazoo's names, etcd, Kubernetes, DynamoDB and S3 have them"
    ),
    "min_hold": (
        'memory, SQLite, PostgreSQL and MySQL by protocol "lease", Redis by "hash" without '
        "replicas, etcd, Kubernetes, DynamoDB and S3"
    ),
    "tokens": "memory, Redis by hash or string, etcd, Kubernetes, DynamoDB and S3 have them",
    "cached": "memory, and Redis by hash or string without replicas",
}

__all__ = ["ABLE", "Opened", "StoreType", "check_protocol", "library", "open_store", "split_urls"]

GROUP = "leaselock.stores"

REDIS = "leaselock._backends.redis.store"
REDLOCK = "leaselock._backends.redlock.store"
DYNAMODB = "leaselock._backends.dynamodb.store"
S3 = "leaselock._backends.s3.store"
SCHEMES = {
    "memory": "leaselock._backends.memory.store",
    "sqlite": "leaselock._backends.sqlite.store",
    "redis": REDIS,
    "rediss": REDIS,
    "unix": REDIS,
    "redis+sentinel": REDIS,
    "rediss+sentinel": REDIS,
    "redis+cluster": REDIS,
    "rediss+cluster": REDIS,
    "etcd": "leaselock._backends.etcd.store",
    "etcds": "leaselock._backends.etcd.store",
    "zookeeper": "leaselock._backends.zookeeper.store",
    "postgresql": "leaselock._backends.sql.store",
    "postgres": "leaselock._backends.sql.store",
    "kubernetes": "leaselock._backends.kubernetes.store",
    "mysql": "leaselock._backends.sql.store",
    "mariadb": "leaselock._backends.sql.store",
    "dynamodb": DYNAMODB,
    "s3": S3,
}
# The clients that users have already, by the package that their class, or one above it, is from. A
# package with clients of several services is named with the class.
OBJECTS = {
    "redis": REDIS,
    "valkey": REDIS,
    "kazoo": "leaselock._backends.zookeeper.store",
    "sqlalchemy": "leaselock._backends.sql.store",
    "botocore.DynamoDB": DYNAMODB,
    "boto3.dynamodb.Table": DYNAMODB,
    "boto3.s3.Bucket": S3,
}


def open_store(
    target: object, now: Callable[[], float], *, aio: bool = False, prefix: str | None = None
) -> Opened:
    """The store that *target* names: a URL, or the user's own client; for asyncio with *aio*.
    Several of them are the masters of a Redlock: a list, or URLs with commas between them. *prefix*
    is what the keys of locks begin with, in a store that has prefixes.

    ValueError when no backend knows the URL, TypeError for an object that is no such client.
    """
    if isinstance(target, str):
        target = without_driver(target)
        check_form(target, SCHEMES)
        if target.count("://") > 1:
            target = _several(target)
    how: dict[str, Any] = {"aio": aio} if prefix is None else {"aio": aio, "prefix": prefix}
    if isinstance(target, list | tuple):
        return _built_in(REDLOCK).open(target, now, **how)
    store = _of_url(target) if isinstance(target, str) else _of_object(target)
    if prefix is not None and not store.prefixes:
        raise ValueError("prefix= is for locks in Redis and Valkey, whose keys are shared")
    opened = store.open(target, now, **how)
    user = parse(target).user if isinstance(target, str) else None
    return opened._replace(typed=with_user(opened.shown, user)) if user else opened


def split_urls(text: str) -> list[str]:
    """The URLs in a text: one, or those of the masters of a Redlock with commas in between.

    A comma may also stand between the hosts of one URL: only before a scheme does it part two.
    """
    import re

    return re.split(r",(?=[a-z][a-z+]*://)", text)


def _several(urls: str) -> object:
    found = split_urls(urls)
    return found if len(found) > 1 else urls


def _built_in(module: str) -> StoreType:
    store: StoreType = import_module(module).STORE
    return store


def _of_url(url: str) -> StoreType:
    scheme = url.partition(":")[0].lower()
    module = SCHEMES.get(scheme)
    store = _installed(scheme, url) if module is None else _built_in(module)
    if scheme not in EMBEDDED:
        parse(url)
    return store


def _installed(scheme: str, url: str) -> StoreType:
    """The store that another distribution has for the scheme."""
    # Loaded where it is used: it takes longer than all else here.
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    found = {point.value: point for point in points if point.name.lower() == scheme}
    if not found:
        known = ", ".join(f"{name}://" for name in sorted({*SCHEMES, *points.names}))
        # Without its scheme, the text may begin with a user name and a password.
        named = repr(scheme) if "@" not in url else "this text"
        raise ValueError(f"no store is known for {named}: the URL of one begins with {known}")
    if len(found) > 1:
        raise ValueError(f"several stores are installed for {scheme}://: {', '.join(found)}")
    (point,) = found.values()
    try:
        store = point.load()
    except Exception as error:
        what = f"{point.value}, which is installed for {scheme}://, cannot be loaded"
        raise ImportError(f"{what}: {type(error).__name__}: {error}") from error
    if not isinstance(store, StoreType):
        raise ImportError(f"{point.value}, which is installed for {scheme}://, is no StoreType")
    return store


def _of_object(target: object) -> StoreType:
    for kind in type(target).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in OBJECTS:
            check_version(package)
            return _built_in(OBJECTS[package])
        if (name := f"{package}.{kind.__name__}") in OBJECTS:
            return _built_in(OBJECTS[name])
    raise TypeError(
        "a store is named by a URL such as 'sqlite:///', a list of Redis masters, or a client of "
        "redis-py, valkey-py, kazoo, SQLAlchemy or boto3 (DynamoDB, S3), not by one of type "
        f"{type(target).__name__}"
    )


def check_protocol(wanted: str | None, known: tuple[str, ...], store: str) -> str:
    """The protocol to use, the first known being the default."""
    if wanted is None:
        return known[0]
    if wanted not in known:
        choice = ", ".join(known)
        raise ValueError(f"the {store} store has no protocol {wanted!r}: it knows {choice}")
    return wanted


def chance() -> float:
    """A random number from 0 up to 1, of the kernel: a fork does not repeat it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
