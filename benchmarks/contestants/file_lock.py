"""filelock: FileLock with the default settings (polls every 50 ms)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import filelock

if TYPE_CHECKING:
    from pathlib import Path


class FileLock:
    """flock(2) on a file that is opened for each acquisition; reentrant; no token, no order."""

    version: ClassVar[str] = filelock.__version__
    reentrant: ClassVar[bool] = True
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.lock = filelock.FileLock(folder / "filelock.lock")

    def acquire(self) -> None:
        """Acquire the lock."""
        self.lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Nothing to close."""
