"""leaselock as a user writes it: a lease of 30 s that is renewed, reentrant, fair, with a token."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import leaselock


class Ours:
    """One client and its lock; where the store is, each kind says itself."""

    version: ClassVar[str] = leaselock.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = leaselock.Client(self.url(folder))
        self.choose("leaselock")

    @staticmethod
    def url(folder: Path) -> str:
        """Where the store is."""
        return Path(folder, "url").read_text()

    def choose(self, name: str) -> None:
        """Use another lock of the client."""
        self.lock = self.client.lock(name)
        self.leases: list[leaselock.Lease] = []

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


class Redis(Ours):
    """On one server."""


class Redlock(Ours):
    """On independent masters; the file names them with commas between."""


class Embedded(Ours):
    """On a file."""

    @staticmethod
    def url(folder: Path) -> str:
        """A file that all share."""
        return f"sqlite:///{folder / 'leaselock.db'}"


class ZooKeeper(Ours):
    """In a session."""

    @staticmethod
    def url(folder: Path) -> str:
        """A place of our own."""
        return f"zookeeper://{Path(folder, 'hosts').read_text()}/bench"


class SqlLease(Ours):
    """A row with holder and expiry: the default of databases."""

    protocol: ClassVar[str] = "lease"

    @classmethod
    def url(cls, folder: Path) -> str:
        """The server, and which of the three ways."""
        return f"{Path(folder, 'url').read_text()}?protocol={cls.protocol}"


class SqlRow(SqlLease):
    """SELECT … FOR UPDATE."""

    protocol: ClassVar[str] = "row"


class SqlAdvisory(SqlLease):
    """The server's named locks."""

    protocol: ClassVar[str] = "advisory"
