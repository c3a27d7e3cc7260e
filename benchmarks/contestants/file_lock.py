"""filelock: FileLock with the default settings (polls every 50 ms).

It is also measured with ReadWriteLock, which waits in SQLite's busy handler.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import filelock

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


class FileLock:
    """flock(2) on a file that is opened for each acquisition; reentrant; no token, no order."""

    version: ClassVar[str] = filelock.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lock: filelock.BaseFileLock | filelock.ReadWriteLock
        self.lock = filelock.FileLock(folder / "filelock.lock")
        self.request: Callable[[], object] = self.lock.acquire

    def use_side(self, side: str) -> None:
        """Use a side of a read/write lock."""
        self.lock = filelock.ReadWriteLock(self.folder / "filelock.db")
        self.request = getattr(self.lock, f"acquire_{side}")

    def acquire(self) -> None:
        """Acquire the lock."""
        self.request()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Nothing to close."""
