"""flock(2) on an open file: no lease, no token, no information about the holder."""

from __future__ import annotations

import fcntl
import os
import platform
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from pathlib import Path


class Flock:
    """Two system calls; a waiter sleeps in the kernel."""

    version: ClassVar[str] = platform.release()
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.file = os.open(folder / "flock.lock", os.O_RDWR | os.O_CREAT, 0o600)

    def acquire(self) -> None:
        """Acquire the lock."""
        fcntl.flock(self.file, fcntl.LOCK_EX)

    def release(self) -> None:
        """Release the lock."""
        fcntl.flock(self.file, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self.file)
