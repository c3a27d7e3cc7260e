"""holdfast on ZooKeeper, as a user writes it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import holdfast


class Queue:
    """A lease of 30 s that is renewed, reentrant, fair, with a token: the default."""

    version: ClassVar[str] = holdfast.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        hosts = Path(folder, "hosts").read_text()
        self.client = holdfast.Client(f"zookeeper://{hosts}/bench")
        self.lock = self.client.lock("holdfast")
        self.leases: list[holdfast.Lease] = []

    def acquire(self) -> None:
        """Take it."""
        lease = self.lock.acquire()
        assert lease is not None
        self.leases.append(lease)

    def release(self) -> None:
        """Give it back."""
        self.leases.pop().release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()
