"""Which store serves a URL, or a client that the user has.

A store describes itself by one `StoreType`, which is found by the scheme of its URL: those of
other distributions by the entry points of the group ``leaselock.stores``, whose names are schemes;
those of this package in a table of the same form, which needs no look at what is installed
(decision 30). A store is loaded when its scheme is used, and its client library not before that.
"""

from __future__ import annotations

import os
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

from leaselock._backends.libraries import check_version, library
from leaselock._backends.url import EMBEDDED, check_form, parse, with_user, without_driver
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping

    from leaselock._backends.url import StoreURL
    from leaselock._core.contract.backend import Backend, Capabilities, Finding
    from leaselock._core.contract.lifecycle import Lifecycle


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
    parts: tuple[Lifecycle, ...] = ()
    """What the driver wakes, closes, and calls in a forked child."""
    notes: tuple[Finding, ...] = ()
    """What `doctor` says of the choice of the store."""


class StoreType(NamedTuple):
    """What a store says of itself.

    >>> STORE = StoreType("a file", {"queue": CAPABILITIES}, open_store, options=("poll",))
    """

    name: str
    """How messages name it."""
    protocols: Mapping[str, Capabilities]
    """Its ways of locking, the default first: each excludes only itself. What each can do unless an
    option of the URL takes it away: messages name the stores that can do what another one cannot.
    """
    open: Callable[..., Opened]
    """Called with the URL, or a client of the user's; a function that reads the clock of all
    deadlines; and *aio*, whether the calls are awaited. It opens no connection yet. ValueError for
    a URL that is not valid.
    """
    options: tuple[str, ...] = ()
    """The options of its URL besides ``protocol``, where `protocol_of` checks them."""
    prefixes: bool = False
    """Whether the keys of its locks may have a prefix: *open* takes ``prefix=``."""
    conditions: Mapping[str, str] = {}
    """By a mode or the name of a capability, when an option takes it away: "without replicas"."""
    title: str = ""
    """What the manual calls it, if not by its name."""

    def protocol_of(self, url: StoreURL) -> str:
        """The protocol of ``?protocol=``, or the default; ValueError for an unknown option."""
        url.check_options(("protocol", *self.options), self.name)
        return self.check_protocol(url.options.get("protocol"))

    def check_protocol(self, wanted: str | None) -> str:
        """The protocol to use; ValueError for an unknown one."""
        return check_protocol(wanted, self.protocols, self.name)

    def able(self, what: str) -> str:
        """How messages name it as a store that has the mode or the capability *what*; empty if no
        protocol of it has.
        """
        able = [
            protocol
            for protocol, can in self.protocols.items()
            if what in can.modes or getattr(can, what, False)
        ]
        which = f"by {' and '.join(able)}" if 0 < len(able) < len(self.protocols) else ""
        words = (self.name, which, self.conditions.get(what, ""))
        return " ".join(filter(None, words)) if able else ""


__all__ = [
    "Opened",
    "StoreType",
    "built_in",
    "check_protocol",
    "library",
    "open_store",
    "split_urls",
    "stores_with",
]

GROUP = "leaselock.stores"

REDIS = "leaselock._backends.redis.store:STORE"
REDLOCK = "leaselock._backends.redlock.store:STORE"
ETCD = "leaselock._backends.etcd.store:STORE"
ZOOKEEPER = "leaselock._backends.zookeeper.store:STORE"
POSTGRES = "leaselock._backends.sql.store:POSTGRES"
MYSQL = "leaselock._backends.sql.store:MYSQL"
DYNAMODB = "leaselock._backends.dynamodb.store:STORE"
S3 = "leaselock._backends.s3.store:STORE"
SCHEMES = {
    "memory": "leaselock._backends.memory.store:STORE",
    "sqlite": "leaselock._backends.sqlite.store:STORE",
    "redis": REDIS,
    "rediss": REDIS,
    "unix": REDIS,
    "redis+sentinel": REDIS,
    "rediss+sentinel": REDIS,
    "redis+cluster": REDIS,
    "rediss+cluster": REDIS,
    **{
        f"valkey{tls}{topology}": REDIS
        for topology in ("", "+sentinel", "+cluster")
        for tls in ("", "s")
    },
    "zookeeper": ZOOKEEPER,
    "etcd": ETCD,
    "etcds": ETCD,
    "kubernetes": "leaselock._backends.kubernetes.store:STORE",
    "postgresql": POSTGRES,
    "postgres": POSTGRES,
    "mysql": MYSQL,
    "mariadb": MYSQL,
    "dynamodb": DYNAMODB,
    "s3": S3,
}
# The clients that users have already, by the package that their class, or one above it, is from. A
# package with clients of several services is named with the class.
OBJECTS = {
    "redis": REDIS,
    "valkey": REDIS,
    "kazoo": ZOOKEEPER,
    "sqlalchemy": POSTGRES,  # of any database that it knows
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
        return _load(REDLOCK).open(target, now, **how)
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
    parts = split_urls(urls)
    return parts if len(parts) > 1 else urls


def _load(value: str) -> StoreType:
    module, _, name = value.partition(":")
    store: StoreType = getattr(import_module(module), name)
    return store


def built_in() -> Iterator[tuple[StoreType, tuple[str, ...]]]:
    """The stores of this package that this interpreter can load, with their schemes."""
    for value in dict.fromkeys(SCHEMES.values()):
        with suppress(ImportError):
            yield _load(value), tuple(scheme for scheme in SCHEMES if SCHEMES[scheme] == value)


def stores_with(what: str) -> str:
    """The stores of this package that have a mode or a capability, for messages."""
    *others, last = [named for store, _ in built_in() if (named := store.able(what))]
    return f"{', '.join(others)} and {last}"


def _of_url(url: str) -> StoreType:
    scheme = url.partition(":")[0].lower()
    value = SCHEMES.get(scheme)
    store = _installed(scheme, url) if value is None else _load(value)
    if scheme not in EMBEDDED:
        parse(url)
    return store


def _installed(scheme: str, url: str) -> StoreType:
    """The store that another distribution has for the scheme."""
    # Loaded where it is used: it takes longer than all else here.
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    installed = {point.value: point for point in points if point.name.lower() == scheme}
    if not installed:
        known = ", ".join(f"{name}://" for name in sorted({*SCHEMES, *points.names}))
        # Without its scheme, the text may begin with a user name and a password.
        named = repr(scheme) if "@" not in url else "this text"
        raise ValueError(f"no store is known for {named}: the URL of one begins with {known}")
    if len(installed) > 1:
        raise ValueError(f"several stores are installed for {scheme}://: {', '.join(installed)}")
    (point,) = installed.values()
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
            return _load(OBJECTS[package])
        if (name := f"{package}.{kind.__name__}") in OBJECTS:
            return _load(OBJECTS[name])
    raise TypeError(
        "a store is named by a URL such as 'sqlite:///', a list of Redis masters, or a client of "
        "redis-py, valkey-py, kazoo, SQLAlchemy or boto3 (DynamoDB, S3), not by one of type "
        f"{type(target).__name__}"
    )


def check_protocol(wanted: str | None, known: Collection[str], store: str) -> str:
    """The protocol to use, the first known being the default."""
    if wanted is None:
        return next(iter(known))
    if wanted not in known:
        choice = ", ".join(known)
        raise ValueError(f"the {store} store has no protocol {wanted!r}: it knows {choice}")
    return wanted


def chance() -> float:
    """A random number from 0 up to 1, of the kernel: a fork does not repeat it."""
    return int.from_bytes(os.urandom(4), "big") / 2**32
