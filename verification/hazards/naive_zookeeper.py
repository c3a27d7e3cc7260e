"""The simple recipe for ZooKeeper: one ephemeral node, watched by all waiters.

It uses kazoo with its defaults. An existing node is a held lock; its owner is not checked.
"""

from __future__ import annotations

import threading
import time
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from verification.hazards.lock_program import FOREVER, Grant


class OneNode:
    """CREATE, ephemeral; EXISTS with a watch; DELETE."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        timeout = float(parts.query.partition("timeout=")[2].partition("&")[0])
        self.root = parts.path
        self.zookeeper: Any = import_module("kazoo.client").KazooClient(
            parts.netloc, timeout=timeout
        )
        self.missing = import_module("kazoo.exceptions").NoNodeError
        self.exists_error = import_module("kazoo.exceptions").NodeExistsError
        self.zookeeper.start()
        self.zookeeper.ensure_path(self.root)
        self.held = False

    def acquire(self, name: str, lease: float, *, renew: bool, timeout: float) -> Grant | None:
        """Create, or wait for a change of the node and try again."""
        path = f"{self.root}/{name}"
        deadline = time.monotonic() + timeout
        while not self._create(path):
            changed = threading.Event()
            left = deadline - time.monotonic()
            if left <= 0:
                return None
            if self.zookeeper.exists(path, watch=lambda _, heard=changed: heard.set()):
                changed.wait(left)
        self.held = True
        return Grant()

    def _create(self, path: str) -> bool:
        try:
            self.zookeeper.create(path, ephemeral=True)
        except self.exists_error:
            return False
        return True

    def release(self, name: str) -> None:
        """Delete the node without checking its owner."""
        self.held = False
        self.zookeeper.delete(f"{self.root}/{name}")

    def valid_until(self) -> float:
        """Return FOREVER while held: this method reports no loss."""
        return FOREVER if self.held else 0.0

    def close(self) -> None:
        """End the session."""
        self.zookeeper.stop()
        self.zookeeper.close()
