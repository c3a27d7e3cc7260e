"""leaselock with its defaults: a renewed lease of 30 s, reentrant, fair, with a token."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import leaselock


class Ours:
    """One client and its lock; subclasses define the URL."""

    version: ClassVar[str] = leaselock.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = leaselock.Client(self.url(folder))
        self.use_lock("leaselock")

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of the store."""
        return Path(folder, "url").read_text()

    def use_lock(self, name: str) -> None:
        """Use another lock of the client."""
        self.use(self.client.lock(name))

    def use_side(self, side: str) -> None:
        """Use a side of a read/write lock."""
        sides = self.client.rwlock("leaselock")
        self.use({"read": sides.read, "write": sides.write}[side])

    def use_permits(self, permits: int) -> None:
        """Use a semaphore."""
        self.use(self.client.semaphore("leaselock", permits))

    def use(self, lock: leaselock.Lock) -> None:
        """Use that lock."""
        self.lock = lock
        self.leases: list[leaselock.Lease] = []

    def acquire(self) -> None:
        """Acquire the lock."""
        lease = self.lock.acquire()
        assert lease is not None
        self.leases.append(lease)

    def release(self) -> None:
        """Release the lock."""
        self.leases.pop().release()

    def close(self) -> None:
        """Close the client."""
        self.client.close()


class Redis(Ours):
    """On one Redis server."""


class Redlock(Ours):
    """On independent Redis masters; the file contains their URLs, separated by commas."""


class Embedded(Ours):
    """On an SQLite file."""

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of a shared file."""
        return f"sqlite:///{folder / 'leaselock.db'}"


class Memory(Ours):
    """In this process: what is left of a pair without a store."""

    waits: ClassVar[bool] = False

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of a separate namespace."""
        return f"memory://{folder.name}"


class ZooKeeper(Ours):
    """In a ZooKeeper session."""

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of a separate root."""
        return f"zookeeper://{Path(folder, 'hosts').read_text()}/bench"


class SqlLease(Ours):
    """A row with holder and expiry: the default protocol of databases."""

    protocol: ClassVar[str] = "lease"

    @classmethod
    def url(cls, folder: Path) -> str:
        """Return the URL of the server with the protocol."""
        return f"{Path(folder, 'url').read_text()}?protocol={cls.protocol}"


class SqlRow(SqlLease):
    """A row locked by SELECT … FOR UPDATE."""

    protocol: ClassVar[str] = "row"


class SqlAdvisory(SqlLease):
    """The advisory locks of the server."""

    protocol: ClassVar[str] = "advisory"
