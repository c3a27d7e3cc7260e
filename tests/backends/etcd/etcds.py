"""Stores and listeners of an etcd without a client around them."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any

from leaselock._backends import open_store
from leaselock._backends.document.adapter import Changed, Changes
from leaselock._core.contract.effects import Signal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leaselock._backends.etcd.listener import EtcdListener
    from leaselock._backends.etcd.store import EtcdStore

now = partial(time.clock_gettime, time.CLOCK_BOOTTIME)
# It only bounds a failure.
LIMIT = 60.0


def soon(seconds: float = LIMIT) -> float:
    """The deadline *seconds* from now."""
    return now() + seconds


def connect(url: str) -> tuple[EtcdStore, EtcdListener]:
    """The store and the listener of a client."""
    store, listener = open_store(url, now).parts
    return store, listener  # type: ignore[return-value]


def changes(
    listener: EtcdListener, versions: Mapping[str, Any], seconds: float = LIMIT
) -> Sequence[Changed]:
    """What the listener reports first."""
    answer: Any = listener.call(Changes(versions, Signal()), soon(seconds))
    return answer  # type: ignore[no-any-return]
