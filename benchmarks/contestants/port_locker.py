"""portalocker: Lock with the default settings (polls every 250 ms)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import portalocker

if TYPE_CHECKING:
    from pathlib import Path

# The default is 5 s.
NO_TIMEOUT = 3600.0


class PortaLocker:
    """flock(2) on a file that is opened for each acquisition; no token, no order."""

    version: ClassVar[str] = portalocker.__version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.lock = portalocker.Lock(folder / "portalocker.lock", timeout=NO_TIMEOUT)

    def acquire(self) -> None:
        """Acquire the lock."""
        self.lock.acquire()

    def release(self) -> None:
        """Release the lock."""
        self.lock.release()

    def close(self) -> None:
        """Nothing to close."""
