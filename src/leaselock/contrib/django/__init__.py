"""Locks for Django: settings, commands that run one at a time, migrations, and an admin page.

    # settings.py
    INSTALLED_APPS = [..., "leaselock.contrib.django"]
    LEASELOCK = {"store": "redis://localhost:6379/0"}     # the arguments of leaselock.Client

    # a view, or a command
    from leaselock.contrib.django import client, guard

    with client().lock("order:5", timeout=5): ...

`manage.py leaselock ls` shows the locks, `manage.py migrate_locked` migrates under a lock.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from django.conf import settings

from leaselock import Client

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")

_clients: dict[int, Client] = {}


def options() -> dict[str, Any]:
    """The setting LEASELOCK: the arguments of Client. Without it, $LEASELOCK_URL counts."""
    return dict(getattr(settings, "LEASELOCK", {}))


def client() -> Client:
    """The client of this process, by the setting LEASELOCK."""
    pid = os.getpid()
    found = _clients.get(pid)
    if found is None:
        found = _clients.setdefault(pid, Client(**{"label": "django", **options()}))
    return found


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
