"""A program that uses leaselock, with any of its protocols."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from verification.hazards.lock_program import REPLY_TIMEOUT, Grant

import leaselock
from leaselock._drivers.system_env import now

if TYPE_CHECKING:
    from leaselock import Lease


class LeaselockProgram:
    """A client of the store at *url*, which names the protocol."""

    def __init__(self, url: str, reply_timeout: float = REPLY_TIMEOUT) -> None:
        with warnings.catch_warnings():
            # The table shows the hazards that this warning is about.
            warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
            self.client = leaselock.Client(url, op_timeout=reply_timeout)
        self.leases: list[Lease] = []

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Acquire the lock."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", leaselock.UnsafeProtocolWarning)
            acquired = self.client.lock(name, lease=lease, renew=renew).try_acquire(timeout=timeout)
        if acquired is None:
            return None
        self.leases.append(acquired)
        return Grant(acquired.token)

    def release(self, name: str) -> None:
        """Release the lease, or without one the lock."""
        if self.leases:
            self.leases.pop().release()
        else:
            self.client.lock(name).release()

    def valid_until(self) -> float:
        """Return until when the lease is valid."""
        if not self.leases or self.leases[-1].lost:
            return 0.0
        return now() + self.leases[-1].remaining

    def close(self) -> None:
        """Close the client."""
        self.client.close()
