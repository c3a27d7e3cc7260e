"""Locks for Django: settings, commands that run one at a time, migrations, and an admin page.

    # settings.py
    INSTALLED_APPS = [..., "leaselock.contrib.django"]
    LEASELOCK = {"store": "redis://localhost:6379/0"}     # the arguments of leaselock.Client
    LEASELOCK = {"database": "default"}     # or a PostgreSQL or MySQL database of the project

    # a view, or a command
    from leaselock.contrib.django import client, guard

    with client().lock("order:5", timeout=5): ...

`manage.py leaselock ls` shows the locks, `manage.py migrate_locked` migrates under a lock. If the
store is a database of the project, both `migrate` and `migrate_locked` make its tables.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed

from leaselock import Client
from leaselock.contrib.django.databases import url_of

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class _Made(NamedTuple):
    """A client, the process that made it, and the settings that it was made from."""

    pid: int
    settings: dict[str, Any]
    client: Client


# One for each store, and so for each value that the setting has had.
_clients: list[_Made] = []
# For each setting that is overridden: the clients that were there before.
_overridden: list[list[_Made]] = []


def options() -> dict[str, Any]:
    """The setting LEASELOCK as the arguments of Client. Without it, $LEASELOCK_URL counts.

    Raises ImproperlyConfigured if its "database" is no PostgreSQL or MySQL database of the project,
    or has OPTIONS that the connections of locks cannot have.
    """
    options = dict(getattr(settings, "LEASELOCK", {}))
    if (alias := options.pop("database", None)) is not None:
        if "store" in options:
            raise ImproperlyConfigured("LEASELOCK has a store and a database: state one of them")
        options["store"] = url_of(alias)
    return options


def make_tables(*, using: str | None = None, **_: Any) -> None:
    """Make the tables of locks, if the store is a database of the project, and this one if *using*
    says which.
    """
    alias = getattr(settings, "LEASELOCK", {}).get("database")
    if alias is not None and using in (None, alias):
        with Client(**options()) as made:
            made.setup()


def client() -> Client:
    """The client of this process, by the setting LEASELOCK: one for each store.

    It follows a setting that tests override, by `override_settings` or by the fixture `settings` of
    pytest-django; at the end of the override, the client that was made for it is closed.
    """
    wanted, pid = options(), os.getpid()
    if (known := _known(pid, wanted)) is not None:
        return known.client
    made = _Made(pid, wanted, Client(**{"label": "django", **wanted}))
    _clients.append(made)
    # Threads may have made one at the same time: all take the first. A mutex might be held by
    # another thread when the process forks.
    first = _known(pid, wanted) or made
    if first is not made:
        _clients.remove(made)
        made.client.close()
    return first.client


def _known(pid: int, wanted: dict[str, Any]) -> _Made | None:
    """The first client of this process that was made from these settings."""
    made = (made for made in list(_clients) if made.pid == pid and made.settings == wanted)
    return next(made, None)


def _changed(*, setting: str, enter: bool, **_: Any) -> None:
    """Close the clients that were made while the setting was overridden."""
    if setting != "LEASELOCK":
        return
    if enter:
        _overridden.append(list(_clients))
        return
    before = _overridden.pop() if _overridden else []
    for made in [made for made in _clients if made not in before]:
        _clients.remove(made)
        if made.pid == os.getpid():
            made.client.close()


setting_changed.connect(_changed)


def guard(name: str, **how: Any) -> Callable[[Callable[P, R]], Callable[P, R | None]]:
    """Decorate a function, or `handle` of a command, that runs under the lock *name*.

    This is `Client.guard` of the client of the process that calls the function: *name* may name the
    parameters of the function, and *how* are *busy* ("wait", "raise" or "skip") and the options of
    `Client.lock`. The settings are read by the first call.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
            guarded: Callable[P, R | None] = client().guard(name, **how)(function)
            return guarded(*args, **kwargs)

        return under_lock

    return decorate
