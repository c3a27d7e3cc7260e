"""portalocker's Redis lock: who is subscribed to a channel holds it, for as long as connected."""

from __future__ import annotations

from typing import ClassVar

import portalocker

from benchmarks.contestants.peer import Peer

# By default an attempt fails after 5 s.
NO_TIMEOUT = 3600.0


class PortaLockerRedis(Peer):
    """No lease: its end is that of a connection; no order among those who wait, and no token."""

    version: ClassVar[str] = portalocker.__version__

    def choose(self, name: str) -> None:
        """As its documentation shows it; the name is that of a connection, too."""
        channel = f"portalocker-{name.replace(' ', '-')}"
        self.lock = portalocker.RedisLock(channel, connection=self.client, timeout=NO_TIMEOUT)
