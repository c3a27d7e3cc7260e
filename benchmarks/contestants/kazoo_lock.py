"""kazoo's own lock: neither reentrant nor renewed, its loss is not told."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.version import __version__  # type: ignore[import-untyped]


class KazooLock:
    """As its documentation shows it."""

    version: ClassVar[str] = __version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = True

    def __init__(self, folder: Path) -> None:
        self.client = KazooClient(Path(folder, "hosts").read_text())
        self.client.start()
        self.lock = self.client.Lock("/bench/kazoo")

    def acquire(self) -> None:
        """Take it."""
        assert self.lock.acquire()

    def release(self) -> None:
        """Give it back."""
        self.lock.release()

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()
