"""A program that uses leaselock, in any of its ways."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import leaselock
from leaselock.drivers.system_env import now
from leaselock.testing.hazards.party import ANSWER, Grip

if TYPE_CHECKING:
    from leaselock import Lease


class Ours:
    """A client of the store at *url*, which says the protocol."""

    def __init__(self, url: str, answer: float = ANSWER) -> None:
        with warnings.catch_warnings():
            # The table is about what that warns of.
            warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
            self.client = leaselock.Client(url, op_timeout=answer)
        self.leases: list[Lease] = []

    def take(self, name: str, lease: float, *, renew: bool, patience: float) -> Grip | None:
        """Acquire."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
            got = self.client.lock(name, lease=lease, renew=renew).acquire(timeout=patience)
        if got is None:
            return None
        self.leases.append(got)
        return Grip(got.token)

    def release(self, name: str) -> None:
        """Release the lease, or without one the lock."""
        if self.leases:
            self.leases.pop().release()
        else:
            self.client.lock(name).release()

    def until(self) -> float:
        """What the lease says."""
        if not self.leases or self.leases[-1].lost:
            return 0.0
        return now() + self.leases[-1].remaining

    def close(self) -> None:
        """Close the client."""
        self.client.close()
