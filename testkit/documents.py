"""Stores that compare and set one value, for tests: in memory, and in files of a folder.

``documents://room?watch=no&current=no&clock=no`` is in the memory of this process. The switches
take away that it reports changes, that a conflict returns the present document, and that it tells
its time. ``documents-in:///folder`` is for several processes; it reports no changes.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from leaselock._backends.document.adapter import (
    Changed,
    Changes,
    Conflict,
    DocumentStore,
    Found,
    Page,
    Stored,
    Traits,
)
from leaselock._backends.document.store import document_store, opened
from leaselock._backends.url import decoded, parse, yes_or_no
from leaselock._core.contract.backend import Finding
from leaselock._core.contract.lifecycle import BlockingNode
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leaselock._backends import Opened

# The longest that a listener waits at once, and how many documents one list has.
LONGEST_WAIT, PAGE = 3600.0, 3
TRAITS = Traits(soonest_poll=0.002, latest_poll=0.05)


class Room:
    """Documents in memory, by their names, each with its version."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.documents: dict[str, tuple[bytes, int]] = {}
        self.writes = 0


ROOMS: dict[tuple[int, str], Room] = {}


class Memory(DocumentStore):
    """Documents in the memory of this process."""

    def __init__(
        self, name: str, now: Callable[[], float], *, current: bool = True, clock: bool = True
    ) -> None:
        super().__init__(TRAITS)
        self.name, self.now, self.current, self.clock = name, now, current, clock
        self.room = self.enter()

    def enter(self) -> Room:
        """The room of this process."""
        return ROOMS.setdefault((os.getpid(), self.name), Room())

    def time(self) -> float | None:
        """The time as HTTP has it: in whole seconds."""
        return float(int(time.time())) if self.clock else None

    def found(self, name: str) -> Found:
        """What there is."""
        value, version = self.room.documents.get(name, (None, None))
        return Found(value, version, self.time())

    def get(self, name: str, until: float) -> Found:
        """Read."""
        with self.room.changed:
            return self.found(name)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write."""
        room = self.room
        with room.changed:
            if self.found(name).version != version:
                return Conflict(self.found(name) if self.current else None)
            room.writes += 1
            room.documents[name] = (value, room.writes)
            room.changed.notify_all()
            return Stored(room.writes, self.time())

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete."""
        room = self.room
        with room.changed:
            if version is None or self.found(name).version != version:
                return False
            del room.documents[name]
            room.changed.notify_all()
            return True

    def list(self, position: Any, until: float) -> Page:
        """A few documents; every other one without its content."""
        with self.room.changed:
            names = sorted(name for name in self.room.documents if name > (position or ""))
            shown = names[:PAGE]
            documents = [(n, self.found(n) if i % 2 else None) for i, n in enumerate(shown)]
            return Page(documents, shown[-1] if len(names) > PAGE else None)

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Nothing can be wrong."""
        return (Finding("ok", "documents in memory"),)

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Nothing to do."""
        return ()

    def after_fork(self) -> None:
        """A forked child has a room of its own."""
        self.room = self.enter()


class Listener(BlockingNode):
    """Waits for changes in a room."""

    def __init__(self, store: Memory) -> None:
        self.store = store
        self.ended = False

    def call(self, request: Any, until: float) -> Sequence[Changed]:
        """The documents that have another version."""
        assert isinstance(request, Changes)
        room = self.store.room
        wake = request.interrupt.add(self._wake)
        try:
            with room.changed:
                while not (changes := self._changes(request)):
                    if self.ended:
                        raise NotApplied("the client was closed")
                    left = min(until - self.store.now(), LONGEST_WAIT)
                    if request.interrupt.is_set or left <= 0.0:
                        return ()
                    room.changed.wait(left)
                return changes
        finally:
            request.interrupt.remove(wake)

    def _changes(self, request: Changes) -> list[Changed]:
        found = [(name, self.store.found(name)) for name in request.versions]
        return [
            Changed(name, each) for name, each in found if each.version != request.versions[name]
        ]

    def _wake(self) -> None:
        with self.store.room.changed:
            self.store.room.changed.notify_all()

    def wake(self) -> None:
        """End the present call."""
        self.ended = True
        self._wake()

    def close(self) -> None:
        """Be ready to be used again."""
        self.ended = False

    def after_fork(self) -> None:
        """The child begins without a wait."""
        self.ended = False


class Folder(DocumentStore):
    """Documents in the files of a folder."""

    def __init__(self, path: str) -> None:
        super().__init__(TRAITS)
        self.path = path
        # The descriptors of the file that is locked, one for each thread.
        self.locked: set[int] = set()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Exclude every other reader and writer."""
        os.makedirs(self.path, exist_ok=True)
        lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT)
        self.locked.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the descriptor
            yield
        finally:
            self.locked.discard(lock)
            os.close(lock)

    def after_fork(self) -> None:
        """Close the copies that a child has: its own requests would wait for them."""
        while self.locked:
            os.close(self.locked.pop())

    def file(self, name: str) -> str:
        """The path of a document. The names of files are shorter than those of locks."""
        quoted = quote(name, safe="").replace(".", "%2E")
        parts = [quoted[i : i + 100] for i in range(0, len(quoted), 100)]
        return os.path.join(self.path, "documents", *parts[:-1], parts[-1] + ".json")

    def found(self, name: str) -> Found:
        """What there is; its content is its version."""
        try:
            with open(self.file(name), "rb") as file:
                value = file.read()
        except FileNotFoundError:
            return Found(None, None, time.time())
        return Found(value, value, time.time())

    def get(self, name: str, until: float) -> Found:
        """Read."""
        with self.alone():
            return self.found(name)

    def put(
        self, name: str, value: bytes, version: Any, unused_after: float | None, until: float
    ) -> Stored | Conflict:
        """Write."""
        with self.alone():
            found = self.found(name)
            if found.version != version:
                return Conflict(found)
            file = self.file(name)
            os.makedirs(os.path.dirname(file), exist_ok=True)
            with open(file + ".new", "wb") as new:
                new.write(value)
            os.replace(file + ".new", file)
            return Stored(value, time.time())

    def delete(self, name: str, version: Any, until: float) -> bool:
        """Delete."""
        with self.alone():
            if version is None or self.found(name).version != version:
                return False
            os.remove(self.file(name))
            return True

    def list(self, position: Any, until: float) -> Page:
        """All documents."""
        root = os.path.join(self.path, "documents")
        with self.alone():
            paths = [os.path.join(at, file) for at, _, files in os.walk(root) for file in files]
            parts = [os.path.relpath(path, root) for path in paths if path.endswith(".json")]
            names = [unquote(part.removesuffix(".json").replace("/", "")) for part in parts]
            return Page([(name, self.found(name)) for name in names])

    def doctor(self, until: float) -> tuple[Finding, ...]:
        """Nothing can be wrong."""
        return (Finding("ok", f"documents in {self.path}"),)

    def setup(self, dry: bool, until: float) -> tuple[str, ...]:
        """Nothing to do."""
        return ()


def open_memory(named: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of ``documents://room``."""
    url = parse(named)
    MEMORY.protocol_of(url)
    switches = {name: url.option(name, yes_or_no, True) for name in SWITCHES}
    watch = switches.pop("watch")
    store = Memory(decoded(url.authority), now, **switches)
    listener = Listener(store) if watch else None
    return opened(MEMORY, url, store, listener, now, shown=named)


def open_folder(named: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of ``documents-in:///folder``."""
    url = parse(named)
    FOLDER.protocol_of(url)
    return opened(FOLDER, url, Folder(decoded(url.path)), None, now, shown=named)


SWITCHES = ("watch", "current", "clock")
MEMORY = document_store("document", open_memory, SWITCHES, listens=True)
FOLDER = document_store("document folder", open_folder)
