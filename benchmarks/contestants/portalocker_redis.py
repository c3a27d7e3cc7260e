"""portalocker's Redis lock: the subscriber of a channel holds the lock while it is connected."""

from __future__ import annotations

from typing import ClassVar

import portalocker

from benchmarks.contestants.peer import Peer

# The default is 5 s.
NO_TIMEOUT = 3600.0


class PortaLockerRedis(Peer):
    """No lease: the hold ends with the connection; waiters have no order; no token."""

    version: ClassVar[str] = portalocker.__version__

    def use_lock(self, name: str) -> None:
        """Create the lock as the documentation shows it; its name is also that of a connection."""
        channel = f"portalocker-{name.replace(' ', '-')}"
        self.lock = portalocker.RedisLock(channel, connection=self.client, timeout=NO_TIMEOUT)
