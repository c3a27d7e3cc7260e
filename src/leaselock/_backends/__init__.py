"""The backends: which one serves a URL, or a client that the user has.

A backend is loaded when a store of its kind is opened, and its client library not before that.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.libraries import check_version, library
from leaselock._backends.url import check_form, parse, with_user, without_driver

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.url import StoreURL
    from leaselock._core.backend import Backend, Finding, StoreLifecycle


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
    stores: tuple[StoreLifecycle, ...] = ()
    """What the driver interrupts, closes and abandons."""
    blocking: tuple[Any, ...] = ()
    """Nodes whose calls block; for asyncio the driver calls each in a thread of its own."""
    notes: tuple[Finding, ...] = ()
    """What `doctor` says of the choice of the store."""


__all__ = ["Opened", "check_protocol", "default_protocol", "library", "open_store", "split_urls"]

REDIS = "leaselock._backends.redis.store"
REDLOCK = "leaselock._backends.redlock.store"
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
    "zookeeper": "leaselock._backends.zookeeper.store",
    "postgresql": "leaselock._backends.sql.store",
    "postgres": "leaselock._backends.sql.store",
    "mysql": "leaselock._backends.sql.store",
    "mariadb": "leaselock._backends.sql.store",
}
# The clients that users have already, by the package that their class, or one above it, is from.
OBJECTS = {
    "redis": REDIS,
    "valkey": REDIS,
    "kazoo": "leaselock._backends.zookeeper.store",
    "sqlalchemy": "leaselock._backends.sql.store",
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
    terms: dict[str, Any] = {"aio": aio} if prefix is None else {"aio": aio, "prefix": prefix}
    if isinstance(target, list | tuple):
        masters: Opened = import_module(REDLOCK).open_masters(target, now, **terms)
        return masters
    module = _of_url(target) if isinstance(target, str) else _of_object(target)
    if prefix is not None and module != REDIS:
        raise ValueError("prefix= is for locks in Redis and Valkey, whose keys are shared")
    opened: Opened = import_module(module).open_store(target, now, **terms)
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


def _of_url(url: str) -> str:
    scheme = url.partition(":")[0].lower()
    module = SCHEMES.get(scheme)
    if module is None:
        known = ", ".join(f"{name}://" for name in sorted(SCHEMES))
        # Without its scheme, the text may begin with a user name and a password.
        named = repr(scheme) if "@" not in url else "this text"
        raise ValueError(f"no store is known for {named}: the URL of one begins with {known}")
    if scheme not in ("memory", "sqlite"):
        parse(url)
    return module


def _of_object(target: object) -> str:
    for kind in type(target).__mro__:
        package = kind.__module__.partition(".")[0]
        if package in OBJECTS:
            check_version(package)
            return OBJECTS[package]
    raise TypeError(
        "a store is named by a URL such as 'sqlite:///', a list of Redis masters, or a client of "
        f"redis-py, valkey-py, kazoo or SQLAlchemy, not by one of type {type(target).__name__}"
    )


def default_protocol(
    url: StoreURL, known: tuple[str, ...], store: str, options: tuple[str, ...] = ()
) -> str:
    """The protocol of ``?protocol=``, else the first known; ValueError for options other than that
    and *options*.
    """
    url.check_options(("protocol", *options), store)
    return check_protocol(url.options.get("protocol"), known, store)


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
