"""The lower bound for leaselock and kazoo: the requests of the recipe by kazoo's client.

Create and list are sent in one batch, then one delete, as in leaselock.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.version import __version__  # type: ignore[import-untyped]

DATA = b'{"host": "a", "pid": 12345, "thread": "MainThread", "label": null}'


class Bare:
    """Two batches of requests."""

    version: ClassVar[str] = __version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.client = KazooClient(Path(folder, "hosts").read_text())
        self.client.start()
        self.client.ensure_path("/bench/bare")
        self.node = ""

    def acquire(self) -> None:
        """Acquire the lock, which is always free."""
        client, path = self.client, "/bench/bare/0123456789abcdef__lock__"
        created = client.create_async(path, DATA, ephemeral=True, sequence=True, include_data=True)
        listed = client.get_children_async("/bench/bare")
        self.node, _ = created.get()
        assert len(listed.get()) == 1

    def release(self) -> None:
        """Release the lock."""
        self.client.delete(self.node)

    def close(self) -> None:
        """Close the session."""
        self.client.stop()
        self.client.close()
