"""The store of a client: a URL, an object, the environment variable, or the default."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock.backends import Opened, open_store

if TYPE_CHECKING:
    from collections.abc import Callable

VARIABLE = "LEASELOCK_URL"
DEFAULT = "sqlite:///"


def connect(store: object, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store that *store* names: a URL; None for $LEASELOCK_URL, else the embedded file."""
    if store is None:
        store = os.environ.get(VARIABLE) or DEFAULT
    return open_store(store, now, aio=aio)
