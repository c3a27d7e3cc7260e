"""The description of a store for the suite: where to find a fresh one, and what it supports.

A scenario names the capabilities that it needs. On a store without them it is skipped, and the
reason is given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.rows.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Store(NamedTuple):
    """One store under test."""

    name: str
    fresh: Callable[[Path], str]
    """Returns the URL of an instance without locks; its argument is an empty folder."""
    protocols: tuple[str, ...] = ()
    """The protocols that it supports, the default first."""
    multiprocess: bool = True
    """Several processes can share one instance."""
    fair: bool = True
    """Waiters are served first come, first served."""
    has_queue: bool = True
    """It knows the waiters and wakes them."""
    notifies: bool = True
    """A waiter that is not woken asks no more often than once in about a second."""
    notifies_holder: bool = True
    """It notifies a holder that follows the queue when the first waiter arrives."""
    detects_death: bool = False
    """It notices the death of a process at once."""
    identifies_owner: bool = True
    """An acquire that lost its reply can be repeated or undone: the hold has its owner's id."""
    leases_expire: bool = True
    """A hold ends with its lease."""
    detachable: bool = True
    """A hold can outlive its client."""
    min_hold: bool = False
    """A lock can stay taken for a while after its release."""
    lease: float = 0.4
    """A short lease, in seconds. Where it must be renewed in time, the scenario is repeated with
    longer ones: `Harness.retry_if_slow`.
    """
    confirm_within: float = CONFIRM_WITHIN
    """Seconds that a waiter which does not react may delay those behind it."""
    reply_factor: float = 1.0
    """How much slower it replies than a store in memory or on the same machine."""
    max_waiters: int = 1000
    """How many can wait at once: with some stores, each waiter takes a connection."""
    pace: float = 1.0
    """How much slower than an idle one this machine is: multiplies time bounds, but not what a
    scenario waits for. `slower` makes leases longer, too.
    """
    session_timeout: float = float("inf")
    """Seconds of silence after which a session, and with it a hold, ends. A lease is then valid
    from one sign of life of the session to the next, and only its holder knows its length.
    """
    sharing: bool = False
    """It has read/write locks."""
    downgrades: bool = True
    """A writer that releases its write side first becomes a reader for others, too."""
    updates: bool = False
    """Its read/write locks have an update side."""
    permits: bool = False
    """It has semaphores."""

    @property
    def death_bound(self) -> float:
        """The longest time that a hold with `lease` may outlive its process."""
        return self.lease if self.session_timeout == float("inf") else self.confirm_within

    def slower(self, factor: float) -> Store:
        """Return the same store with bounds and leases that are *factor* times longer."""
        return self._replace(
            lease=self.lease * factor,
            reply_factor=self.reply_factor * factor,
            pace=self.pace * factor,
        )


REASONS = {
    "multiprocess": "several processes cannot share it",
    "fair": "it does not serve waiters in order",
    "has_queue": "it does not know its waiters",
    "notifies": "its waiters ask at short intervals",
    "notifies_holder": "its holders look at the queue as often as they renew",
    "identifies_owner": "a lost reply can leave a hold without an owner",
    "leases_expire": "its holds do not expire",
    "detects_death": "it does not notice the death of a process at once",
    "min_hold": "no hold outlasts its release",
    "detachable": "its holds end with their client",
    "sharing": "it has no read/write locks",
    "downgrades": "a writer remains one until it has released all that it holds",
    "updates": "it has no update locks",
    "permits": "it has no semaphores",
}


def missing(store: Store, need: str) -> str | None:
    """Return why *store* lacks a capability; None if it has it."""
    return None if getattr(store, need) else f"{store.name}: {REASONS[need]}"
