"""What the suite is told of a store: where a fresh one is, and what it adds to the contract.

A scenario names what it needs of it. What the store does not promise is not tested on it, and
the reason is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leaselock.core.rules import CONFIRM_WITHIN

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class Store(NamedTuple):
    """One store under test."""

    name: str
    fresh: Callable[[Path], str]
    """The URL of a place where nothing is locked yet; a folder that is empty is handed in."""
    protocols: tuple[str, ...] = ()
    """The ways of locking that it knows, the default first."""
    processes: bool = True
    """Several processes can share one place."""
    fair: bool = True
    """Waiters are served first come, first served."""
    queue: bool = True
    """It knows who waits, and wakes them."""
    life: bool = False
    """It notices at once when a process dies."""
    owner: bool = True
    """It knows whose a hold is from the moment it is taken."""
    expiry: bool = True
    """A hold ends with its lease."""
    detach: bool = True
    """A hold can outlive its client."""
    lease: float = 0.4
    """A lease that is short, and yet renewed in time."""
    claim_time: float = CONFIRM_WITHIN
    """How long a waiter that does not move may delay those behind it."""
    slow: float = 1.0
    """How many times longer than a store in memory or on a socket nearby it takes to answer."""
    crowd: int = 1000
    """How many can wait at once: for some, each takes a connection of its own."""
    pace: float = 1.0
    """How many times slower than an idle one this machine is: bounds in real time are multiplied by
    it. `slower` makes leases longer, too.
    """
    session: float = float("inf")
    """Its holds end with a session, after so many seconds of silence; a lease is believed from
    one proof of life to the next, and nobody but its holder knows its length.
    """
    local_handoffs: int = 0
    """How often a client's threads or tasks pass a lease on: the store sees one of them only."""

    @property
    def outlived(self) -> float:
        """How long a hold may outlive its process, which had it for `lease`."""
        return self.lease if self.session == float("inf") else self.claim_time

    def slower(self, times: float) -> Store:
        """The same store on a machine that is so many times slower."""
        return self._replace(
            lease=self.lease * times, slow=self.slow * times, pace=self.pace * times
        )


REASONS = {
    "processes": "several processes cannot share it",
    "fair": "it does not serve waiters in order",
    "queue": "nobody knows who waits there",
    "owner": "a reply that is lost leaves a hold that nobody can call his",
    "expiry": "its holds do not expire",
    "life": "it does not notice at once when a process dies",
    "local_handoffs": "nothing is passed on within a client",
    "detach": "its holds end with their client",
}


def missing(store: Store, need: str) -> str | None:
    """Why *store* does not have what a scenario needs; None when it has."""
    return None if getattr(store, need) else f"{store.name}: {REASONS[need]}"
