"""holdfast in a database, by each protocol, as a user writes it."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import holdfast


class Ours:
    """Renewed, reentrant, with a token."""

    version: ClassVar[str] = holdfast.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True
    protocol: ClassVar[str] = "lease"

    def __init__(self, folder: Path) -> None:
        url = Path(folder, "url").read_text()
        self.client = holdfast.Client(f"{url}?protocol={self.protocol}")
        self.lock = self.client.lock(f"holdfast {self.protocol}")
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


class Lease(Ours):
    """A row with holder and expiry: the default."""


class Row(Ours):
    """SELECT … FOR UPDATE."""

    protocol: ClassVar[str] = "row"


class Advisory(Ours):
    """The server's named locks."""

    protocol: ClassVar[str] = "advisory"
