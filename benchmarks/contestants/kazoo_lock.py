"""kazoo's lock: not reentrant; its loss is not reported.

It is also measured with ReadLock and WriteLock, and Semaphore.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.version import __version__  # type: ignore[import-untyped]


class KazooLock:
    """Create the lock as the documentation of the library shows it."""

    version: ClassVar[str] = __version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = KazooClient(Path(folder, "hosts").read_text())
        self.client.start()
        self.lock = self.client.Lock("/bench/kazoo")

    def use_side(self, side: str) -> None:
        """Use a side of a read/write lock."""
        kind = {"read": self.client.ReadLock, "write": self.client.WriteLock}[side]
        self.lock = kind("/bench/kazoo-sides")

    def use_permits(self, permits: int) -> None:
        """Use a semaphore."""
        self.lock = self.client.Semaphore("/bench/kazoo-permits", max_leases=permits)

    def acquire(self) -> None:
        """Acquire the lock."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()
