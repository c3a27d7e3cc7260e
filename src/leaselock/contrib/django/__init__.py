"""Locks for Django: settings, commands that run one at a time, migrations, and an admin page.

    # settings.py
    INSTALLED_APPS = [..., "leaselock.contrib.django"]
    LEASELOCK = {"store": "redis://localhost:6379/0"}     # the arguments of leaselock.Client
    LEASELOCK = {"database": "default"}     # or a PostgreSQL or MySQL database of the project
    LEASELOCK |= {"instrument": "leaselock.contrib.prometheus.instrument"}  # called with the client

    # a view, or a command
    from leaselock.contrib.django import client, guard

    with client().lock("order:5", timeout=5), transaction.atomic(): ...

Inside `atomic`, and so in a view under ATOMIC_REQUESTS, `client().lock` and `guard` raise
RuntimeError, because the lock would be released before the commit: `lock_until_commit` is for that.
`manage.py leaselock ls` shows the locks, `manage.py migrate_locked` migrates under a lock. If the
store is a database of the project, both `migrate` and `migrate_locked` make its tables.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar, overload

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.db.backends.base.creation import BaseDatabaseCreation
from django.utils.module_loading import import_string

from leaselock import Client
from leaselock._api.guard import Guard, no_lock
from leaselock._core.client.validation import checked_body
from leaselock.contrib.django.databases import url_of
from leaselock.contrib.django.transactions import hold_until_commit, refuse_inside_atomic

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Literal, Unpack

    from leaselock import IfBusy, Lease, LockArguments

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
    """The arguments of Client in the setting LEASELOCK. Without it, $LEASELOCK_URL counts.

    Raises ImproperlyConfigured if its "database" is no PostgreSQL or MySQL database of the project,
    or has OPTIONS that the connections of locks cannot have.
    """
    options = dict(getattr(settings, "LEASELOCK", {}))
    options.pop("instrument", None)
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

    Acquiring a lock inside `transaction.atomic` raises RuntimeError. The client follows a setting
    that tests override, by `override_settings` or by the fixture `settings` of
    pytest-django; at the end of the override, the client that was made for it is closed.
    """
    wanted, pid = options(), os.getpid()
    if (known := _known(pid, wanted)) is not None:
        return known.client
    if "database" in getattr(settings, "LEASELOCK", {}):
        _close_before_the_test_database_is_dropped()
    made = _Made(pid, wanted, Client(**{"label": "django", **wanted}))
    made.client._core.check_acquires(refuse_inside_atomic)
    if instrument := getattr(settings, "LEASELOCK", {}).get("instrument"):
        (import_string(instrument) if isinstance(instrument, str) else instrument)(made.client)
    _clients.append(made)
    # Threads may have made one at the same time: all take the first. A mutex might be held by
    # another thread when the process forks.
    first = _known(pid, wanted) or made
    if first is not made:
        _clients.remove(made)
        made.client.close()
    return first.client


def lock_until_commit(
    name: str, *, using: str | None = None, **options: Unpack[LockArguments]
) -> Lease:
    """Acquire the lock *name* inside `transaction.atomic`; it is released when the transaction of
    the database *using* has been committed or rolled back, or the savepoint rolled back.

    *options* are those of `Client.lock`. Call it before the rows are read that the lock protects.
    LeaseLost is raised after the commit if the lease was lost; `lease.ensure()` raises it before.

    >>> with transaction.atomic():
    ...     lock_until_commit(f"order:{pk}", timeout=5)
    ...     order = Order.objects.get(pk=pk)
    """
    return hold_until_commit(client(), name, using, {**options})


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


@functools.cache
def _close_before_the_test_database_is_dropped() -> None:
    """Have Django close the clients of this process before it drops a test database, which their
    connections would keep from being dropped. Both runners call this method.
    """
    drop = BaseDatabaseCreation.destroy_test_db

    @functools.wraps(drop)
    def destroy_test_db(self: BaseDatabaseCreation, *args: Any, **options: Any) -> Any:
        for made in [made for made in _clients if made.pid == os.getpid()]:
            _clients.remove(made)
            made.client.close()
        return drop(self, *args, **options)

    BaseDatabaseCreation.destroy_test_db = destroy_test_db


@overload
def guard(
    name: str, *, busy: Literal["wait", "raise"] = "wait", **options: Unpack[LockArguments]
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@overload
def guard(
    name: str, *, busy: Literal["skip"], **options: Unpack[LockArguments]
) -> Callable[[Callable[P, R]], Callable[P, R | None]]: ...


def guard(name: str, *, busy: IfBusy = "wait", **options: Unpack[LockArguments]) -> Any:
    """Decorate a function, or `handle` of a command, that runs under the lock *name*.

    This is `Client.guard` of the client of the process that calls the function: *name* may name the
    parameters of the function, and *options* are those of `Client.lock`. The settings are read by
    the first call.
    """
    checked = Guard(no_lock, name, busy, {**options})

    def decorate(function: Callable[P, R]) -> Callable[P, R | None]:
        checked_body(function, awaited=False, written="@guard(...)")
        checked.signature(function)

        @functools.wraps(function)
        def under_lock(*args: P.args, **kwargs: P.kwargs) -> R | None:
            how: dict[str, Any] = {"busy": busy, **options}
            guarded: Callable[P, R | None] = client().guard(name, **how)(function)
            return guarded(*args, **kwargs)

        return under_lock

    return decorate
