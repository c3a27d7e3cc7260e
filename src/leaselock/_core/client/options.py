"""How a lock is acquired, as the user said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from leaselock._core.contract.effects import FOREVER
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from leaselock._core.client.timing import OnOutage
    from leaselock._core.contract.backend import Mode

# What an acquisition does that is not granted in time: it raises AcquireTimeout, returns None, or
# returns the reply of the store.
IfBusy = Literal["raise", "none", "reply"]


class LockOptions(NamedTuple):
    """How a lock is acquired."""

    lease: float
    renew: bool
    timeout: float | None
    reentrant: bool
    label: str | None
    owned_by_lock: bool = False
    """Whether the lock object is the owner, instead of the thread or task."""
    min_hold: float = 0.0
    aligned: bool = False
    mode: Mode = "exclusive"
    limit: int = 0
    """How many permits the semaphore has; 0 takes what the store has."""
    numbered: bool = False
    """Whether each permit that is held has a number."""
    of_rwlock: bool = False
    """Whether it is one lock of a read/write lock."""
    max_hold: float = FOREVER
    """For how long a hold is renewed at most, from its grant on."""
    on_outage: OnOutage = "fail"
    outage_timeout: float = 0.0
    """For how long a request is repeated at least while the store is out of reach."""
