"""mithril's Lock on Redis: polls; a token counted up by a script; a lock object for each use."""

from __future__ import annotations

import logging
from importlib.metadata import version
from typing import ClassVar

import mithril
import structlog
from mithril.backends import RedisBackend

from benchmarks.contestants.peer import Peer

# It writes a line for each acquire and release, unless the program says otherwise.
structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))


class Mithril(Peer):
    """A lease of 30 s without renewal; waiters have no order."""

    version: ClassVar[str] = version("mithril-locks")

    def use_lock(self, name: str) -> None:
        """Create the backend as the documentation of the library shows it."""
        self.backend = RedisBackend(self.client)
        self.name = name

    def acquire(self) -> None:
        """Acquire the lock."""
        self.lock = mithril.Lock(self.name, backend=self.backend, ttl=30, timeout=3600.0)
        self.lock.acquire()
