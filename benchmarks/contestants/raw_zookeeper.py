"""The floor under both: the requests of the recipe by kazoo's client, and nothing around them.

Law: create and list travel together, and one delete after them, as in the recipe of leaselock.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from kazoo.version import __version__  # type: ignore[import-untyped]

DATA = b'{"host": "a", "pid": 12345, "thread": "MainThread", "label": null}'


class Raw:
    """Two flights."""

    version: ClassVar[str] = __version__
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    def __init__(self, folder: Path) -> None:
        self.client = KazooClient(Path(folder, "hosts").read_text())
        self.client.start()
        self.client.ensure_path("/bench/raw")
        self.node = ""

    def acquire(self) -> None:
        """Take it; it is free, for nobody else is there."""
        client, path = self.client, "/bench/raw/0123456789abcdef__lock__"
        created = client.create_async(path, DATA, ephemeral=True, sequence=True, include_data=True)
        listed = client.get_children_async("/bench/raw")
        self.node, _ = created.get()
        assert len(listed.get()) == 1

    def release(self) -> None:
        """Give it back."""
        self.client.delete(self.node)

    def close(self) -> None:
        """End the session."""
        self.client.stop()
        self.client.close()
