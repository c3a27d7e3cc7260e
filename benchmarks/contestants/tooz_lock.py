"""OpenStack's tooz, by each of its drivers: no token, and nobody learns of a loss.

What a driver locks with is that of its store: redis-py's lock, kazoo's, the server's named locks
(on PostgreSQL it connects anew for each acquire), a file.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar


class Tooz:
    """One coordinator, as its documentation shows it."""

    version: ClassVar[str] = version("tooz")
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        # It warns of its own PostgreSQL driver, and PyMySQL of how it is used.
        warnings.filterwarnings(
            "ignore", "PostgreSQL driver is|'(passwd|db)' is|single argument", DeprecationWarning
        )
        get = import_module("tooz.coordination").get_coordinator
        self.coordinator: Any = get(self.url(folder), b"bench")
        self.coordinator.start()
        self.lock: Any = self.coordinator.get_lock(b"bench")

    @staticmethod
    def url(folder: Path) -> str:
        """A server that is told by its URL."""
        url = Path(folder, "url").read_text()
        if url.startswith("postgresql"):
            server, _, database = url.rpartition("/")
            return f"{server}?dbname={database}"
        return url

    def acquire(self) -> None:
        """Take it."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """End the session."""
        self.coordinator.stop()


class ToozZooKeeper(Tooz):
    """By kazoo."""

    @staticmethod
    def url(folder: Path) -> str:
        """The servers."""
        return f"kazoo://{Path(folder, 'hosts').read_text()}"


class ToozFile(Tooz):
    """By fasteners, on a file."""

    @staticmethod
    def url(folder: Path) -> str:
        """A folder."""
        return f"file://{folder / 'tooz'}"
