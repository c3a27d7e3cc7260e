"""OpenStack's tooz with each of its drivers: no token, and no notice of loss.

Each driver uses the lock of its store: redis-py's lock, kazoo's, the server's named locks (on
PostgreSQL with a new connection for each acquire), a file.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar


class Tooz:
    """One coordinator, as the documentation shows it."""

    version: ClassVar[str] = version("tooz")
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        # tooz warns about its own PostgreSQL driver, PyMySQL about the way tooz uses it, and
        # eventlet, which is imported where it is installed, about itself.
        known = r"PostgreSQL driver is|'(passwd|db)' is|single argument|\s*Eventlet is"
        warnings.filterwarnings("ignore", known)
        get = import_module("tooz.coordination").get_coordinator
        self.coordinator: Any = get(self.url(folder), b"bench")
        self.coordinator.start()
        self.lock: Any = self.coordinator.get_lock(b"bench")

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of the server."""
        url = Path(folder, "url").read_text()
        if url.startswith("postgresql"):
            server, _, database = url.rpartition("/")
            return f"{server}?dbname={database}"
        return url

    def acquire(self) -> None:
        """Acquire the lock."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Stop the coordinator."""
        self.coordinator.stop()


class ToozZooKeeper(Tooz):
    """The driver on kazoo."""

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of the servers."""
        return f"kazoo://{Path(folder, 'hosts').read_text()}"


class ToozFile(Tooz):
    """The driver on fasteners, with a file."""

    @staticmethod
    def url(folder: Path) -> str:
        """Return the URL of a folder."""
        return f"file://{folder / 'tooz'}"
