"""The file of one client: its connection, its life, the directory of the others."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING

from leaselock.backends.sqlite.clients import Clients
from leaselock.backends.sqlite.database import INHERITED, connect
from leaselock.backends.sqlite.life import Life
from leaselock.backends.sqlite.place import log_of, prepare, unchanged
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from leaselock.backends.sqlite.place import Place

OPEN_PATIENCE = 5.0
LONGEST_WAIT = 3600.0
FORK_PATIENCE = 1.0
RECHECK_INTERVAL = 0.002


class File:
    """The file of one client, opened when it is first needed."""

    def __init__(self, path: str, now: Callable[[], float]) -> None:
        self.path = path
        self.now = now
        self.begin()
        FILES.add(self)

    def begin(self) -> None:
        """Nothing is open."""
        self.mutex = threading.Lock()
        self.resting = False
        self.place: Place | None = None
        self.looked = 0.0
        self.log: int | None = None
        self.database: sqlite3.Connection | None = None
        self.cursor: sqlite3.Cursor | None = None
        self.life: Life | None = None

    def left(self, until: float) -> float:
        """Seconds until *until*, as far as a lock can be told to wait."""
        return max(0.0, min(until - self.now(), LONGEST_WAIT))

    def open(self, until: float, *, trusting: bool = False) -> sqlite3.Connection:
        """The connection; unless *trusting*, Refused when the file was replaced meanwhile."""
        if self.database is None or self.place is None:
            self.place, self.looked = prepare(self.path), self.now()
            limit = max(until, self.now() + OPEN_PATIENCE)
            self.database = connect(self.place, self.now, limit)
            self.cursor = self.database.cursor()
        elif not trusting and not self._same(self.place):
            raise NotApplied(
                f"{self.path} was removed or replaced while it was in use: "
                "what it said of locks cannot be believed any more"
            )
        return self.database

    def _same(self, place: Place) -> bool:
        """Whether the path still named our file when it was looked at last, a moment ago.

        A look costs a twentieth of an acquire and release, and what happens between a look and
        the statement after it is missed anyway.
        """
        now = self.now()
        if now - self.looked < RECHECK_INTERVAL:
            return True
        log = log_of(place)
        self.log = self.log or log
        same = unchanged(place) and log == self.log
        if same:
            self.looked = now
        return same

    def clients(self) -> Clients:
        """The directory of clients of an open file."""
        assert self.place is not None
        return Clients(self.place.clients)

    def live(self, client: str) -> Life:
        """Come alive as *client*."""
        if self.life is None:
            self.life = Life(self.clients(), client)
        return self.life

    def close(self) -> None:
        """End the life and close the file."""
        with self.mutex:
            if self.life is not None:
                self.life.end()
            if self.database is not None:
                self.database.close()
        self.begin()

    def after_fork(self) -> None:
        """Let go of the parent's without undoing anything of it.

        SQLite counts the users of a file by process, and the child has inherited the count:
        unless the inherited connection is closed, a new one would lock nothing.
        """
        if self.database is not None and self.resting:
            self.database.close()
        elif self.database is not None:
            INHERITED.append(self.database)
        if self.life is not None:
            self.life.let_go()
        self.begin()

    def rest(self) -> None:
        """Before a fork: let no request be in the middle of anything."""
        self.resting = self.mutex.acquire(timeout=FORK_PATIENCE)

    def resume(self) -> None:
        """After a fork, in the parent."""
        if self.resting:
            self.resting = False
            self.mutex.release()


FILES: weakref.WeakSet[File] = weakref.WeakSet()
_RESTING: list[File] = []


def _before_fork() -> None:
    _RESTING[:] = FILES
    for file in _RESTING:
        file.rest()


def _after_fork_in_parent() -> None:
    for file in _RESTING:
        file.resume()
    _RESTING.clear()


os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent)
