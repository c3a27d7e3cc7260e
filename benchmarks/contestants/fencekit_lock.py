"""fencekit's DistributedLock: polls, by default every 0.05 s; a token counted up by a script."""

from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version
from typing import ClassVar

import fencekit

from benchmarks.contestants.peer import Peer

LEASE = timedelta(seconds=30)
# A wait without limit is not offered.
WAIT = timedelta(hours=1)


class Fencekit(Peer):
    """A lease of 30 s without renewal; waiters have no order."""

    version: ClassVar[str] = version("fencekit")

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation of the library shows it."""
        self.lock = fencekit.DistributedLock(self.client)
        self.resource = name

    def acquire(self) -> None:
        """Acquire the lock."""
        self.handle = self.lock.acquire(self.resource, ttl=LEASE, blocking=True, wait=WAIT)

    def release(self) -> None:
        """Release the lock."""
        self.lock.release(self.handle)
