"""The SQLite file as one client uses it: the connection, the own client, and the other clients."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from leaselock._backends.sqlite.client_registry import ClientRegistry
from leaselock._backends.sqlite.database import INHERITED, connect, row_numbers
from leaselock._backends.sqlite.liveness import Liveness
from leaselock._backends.sqlite.location import log_of, prepare, unchanged
from leaselock._backends.url import TOKEN_TTL
from leaselock._core.contract.lifecycle import Living
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection

    from leaselock._backends.sqlite.location import Location

OPEN_TIMEOUT = 5.0
LONGEST_WAIT = 3600.0
FORK_TIMEOUT = 1.0
RECHECK_INTERVAL = 0.002
# As many names are kept, used or not, until the next `gc`.
FEW_ROWS = 100


class File:
    """The file of one client. The first request opens it."""

    def __init__(self, path: str, now: Callable[[], float], token_ttl: float = TOKEN_TTL) -> None:
        self.path = path
        self.token_ttl = token_ttl
        self.now = now
        self.reset()
        FILES.add(self)

    def reset(self) -> None:
        """Forget everything that was open."""
        # Its owner is known: one that was interrupted before it knew that it has it releases it.
        self.mutex = threading.RLock()
        # The thread whose request is carried out, or 0.
        self.worker = 0
        self.paused = False
        self.location: Location | None = None
        self.checked = 0.0
        self.log: int | None = None
        self.database: sqlite3.Connection | None = None
        self.cursor: sqlite3.Cursor | None = None
        self.liveness: Liveness | None = None
        # The claims that were notified and have not asked again.
        self.notified: set[str] = set()
        self.notifications = 0

    def notify(self, claim_ids: Collection[str]) -> None:
        """These claims were notified."""
        if claim_ids:
            self.notified.update(claim_ids)
            self.notifications += 1

    def remaining(self, until: float) -> float:
        """The seconds until *until*, limited to what a lock accepts as timeout."""
        return max(0.0, min(until - self.now(), LONGEST_WAIT))

    def open(self, until: float, *, trusting: bool = False) -> sqlite3.Connection:
        """The connection; unless *trusting*, NotApplied if the file was replaced."""
        if self.database is None or self.location is None:
            self.location, self.checked = prepare(self.path), self.now()
            limit = max(until, self.now() + OPEN_TIMEOUT)
            self.database = connect(self.location, self.now, limit)
            if row_numbers(self.database) > FEW_ROWS:
                from leaselock._backends.sqlite.garbage import prune_some  # seldom needed

                prune_some(self.database, self.token_ttl)
            self.cursor = self.database.cursor()
        elif not trusting and not self._same(self.location):
            raise NotApplied(
                f"{self.path} was removed or replaced while it was in use: "
                "its locks are not valid any more; close all clients of this file"
            )
        return self.database

    def _same(self, location: Location) -> bool:
        """Whether the path still named our file at the last check, a moment ago.

        A check costs 5 % of an acquire and release, and cannot see a change just after it anyway.
        """
        now = self.now()
        if now - self.checked < RECHECK_INTERVAL:
            return True
        log = log_of(location)
        self.log = self.log or log
        same = unchanged(location) and log == self.log
        if same:
            self.checked = now
        return same

    def registry(self) -> ClientRegistry:
        """The directory of clients of an open file."""
        assert self.location is not None
        return ClientRegistry(self.location.clients)

    def begin_client(self, client: str) -> Liveness:
        """The own client, which begins with the id *client* if there is none."""
        if self.liveness is None:
            self.liveness = Liveness(self.registry(), client)
        return self.liveness

    def close(self) -> None:
        """End the client, and close the file."""
        with self.mutex:
            if self.liveness is not None:
                self.liveness.end()
            if self.database is not None:
                self.database.close()
        self.reset()

    def after_fork(self) -> None:
        """Let go of the parent's connection and client without releasing its locks.

        SQLite counts the users of a file for each process, and the child has inherited the count.
        If the inherited connection stayed open, a new one would lock nothing.
        """
        if self.database is not None and self.paused:
            self.database.close()
        elif self.database is not None:
            INHERITED.append(self.database)
        if self.liveness is not None:
            self.liveness.close_descriptors()
        self.reset()

    def pause(self) -> None:
        """Before a fork: wait for the request in progress."""
        self.paused = self.mutex.acquire(timeout=FORK_TIMEOUT)

    def resume(self) -> None:
        """After a fork, in the parent."""
        if self.paused:
            self.paused = False
            self.mutex.release()


FILES = Living[File]()
_PAUSED: list[File] = []


def _before_fork() -> None:
    _PAUSED[:] = FILES
    for file in _PAUSED:
        file.pause()


def _after_fork_in_parent() -> None:
    for file in _PAUSED:
        file.resume()
    _PAUSED.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
