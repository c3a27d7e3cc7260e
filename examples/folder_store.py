"""An example of a store: locks in a folder, for the processes of one machine.

Each lock is one JSON text in a file, which is changed by compare and set. A store that can do that
(etcd, DynamoDB, an object store) needs little more than these two methods in place of the files.
"""

from __future__ import annotations

import fcntl
import glob
import json
import os
import time
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from leaselock import OutcomeUnknown
from leaselock.stores import (
    ALL_MODES,
    BlockingNode,
    Busy,
    Capabilities,
    Claim,
    Collected,
    CollectGarbage,
    Doctor,
    Entry,
    EntryRow,
    Finding,
    HoldRecord,
    NodeBackend,
    Opened,
    Setup,
    StoreType,
    answer,
    decoded,
    parse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CAPABILITIES = Capabilities(
    clock_drift=0.0,  # all clients read the clock of the machine
    clock_margin=0.001,
    detects_death=False,  # a dead client's lock is free when its lease ends
    inheritable=False,
    min_hold=True,
    modes=ALL_MODES,  # the rules do this for every store
)
# Seconds. There are no messages, so that a waiter asks again this soon.
POLL = 0.02
# Longer than a request can be on its way.
TOMBSTONE_LASTS = 120.0


class Folder:
    """Texts by their names. "" is the text of a name that was never set."""

    def __init__(self, path: str) -> None:
        self.path = path
        # The descriptors of the file that is locked, one for each thread.
        self.locked: set[int] = set()

    def names(self) -> list[str]:
        """All names."""
        paths = glob.glob(os.path.join(glob.escape(self.path), "*.json"))
        return [json.loads(text)["name"] for path in paths if (text := self._read(path))]

    def get(self, name: str) -> str:
        """The present text."""
        return self._read(self._file(name))

    def compare_and_set(self, name: str, before: str, after: str) -> bool:
        """Replace the text if it still is *before*; return whether it was."""
        with self.alone():
            if self.get(name) != before:
                return False
            new = self._file(name) + ".new"
            with open(new, "w", encoding="utf-8") as file:
                file.write(after)
            os.replace(new, self._file(name))
        return True

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else writes meanwhile."""
        os.makedirs(self.path, exist_ok=True)
        lock = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT)
        self.locked.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)  # released with the last copy of the descriptor
            yield
        finally:
            self.locked.discard(lock)
            os.close(lock)

    def after_fork(self) -> None:
        """Close the copies that a child has of its parent's descriptors: while they are open, the
        file stays locked, for the child itself, too.
        """
        while self.locked:
            os.close(self.locked.pop())

    def _file(self, name: str) -> str:
        # A name may be longer than that of a file, and have any character.
        return os.path.join(self.path, sha256(name.encode()).hexdigest() + ".json")

    def _read(self, path: str) -> str:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return ""


class FolderRow(EntryRow):
    """One lock, as it was read, for one request."""

    def __init__(self, name: str, text: str, now: float) -> None:
        self.name, self.text, self.now = name, text, now
        self.micros = lambda: time.time_ns() // 1000
        self.entry, self.tombstones = Entry(), dict[str, float]()
        if text:
            stored = json.loads(text)
            self.entry.token, self.limit, self.lapsed_offer = stored["state"]
            self.entry.holds = {hold[0]: HoldRecord(*hold) for hold in stored["holds"]}
            self.entry.queue = {claim[1]: Claim(*claim) for claim in stored["queue"]}
            self.tombstones = stored["tombstones"]

    def changed(self) -> str:
        """The text to be stored now."""
        stored = {
            "name": self.name,
            "state": [self.entry.token, self.limit, self.lapsed_offer],
            "holds": list(self.entry.holds.values()),
            "queue": list(self.entry.queue.values()),
            "tombstones": {c: end for c, end in self.tombstones.items() if end > self.now},
        }
        return json.dumps(stored)

    def has_tombstone(self, claim_id: str) -> bool:
        """Whether the claim is refused for good."""
        return claim_id in self.tombstones

    def tombstone(self, claim_id: str) -> None:
        """Refuse the claim from now on."""
        self.tombstones[claim_id] = self.now + TOMBSTONE_LASTS


class FolderStore(BlockingNode):
    """Carries out requests. Its calls block; for asyncio they run in a thread of their own."""

    def __init__(self, path: str, now: Callable[[], float]) -> None:
        self.folder = Folder(path)
        self.now = now

    def call(self, request: Any, until: float) -> Any:
        """The reply to a request."""
        if isinstance(request, Doctor):
            return (Finding("ok", f"the folder {self.folder.path}"),)
        if isinstance(request, Setup):
            return ()  # the folder is created with the first lock
        if isinstance(request, CollectGarbage):
            return Collected(0)
        try:
            return self._answer(request)
        except OSError as error:  # no space is left, for example
            raise OutcomeUnknown(f"{self.folder.path}: {error}", "refused") from error

    def after_fork(self) -> None:
        """In a forked child: nothing is locked."""
        self.folder.after_fork()

    def _answer(self, request: Any) -> Any:
        while True:
            rows: dict[str, FolderRow] = {}

            def row(name: str, rows: dict[str, FolderRow] = rows) -> FolderRow:
                # One row for a name: a request may renew several permits of one semaphore.
                if name not in rows:
                    rows[name] = FolderRow(name, self.folder.get(name), self.now())
                return rows[name]

            reply = answer(row, request, self.folder.names)
            # If another client was faster, decide again on what it has left. A request may be
            # carried out twice: it returns the same reply.
            if all(self._write(row) for row in rows.values()):
                return reply._replace(retry_after=POLL) if isinstance(reply, Busy) else reply

    def _write(self, row: FolderRow) -> bool:
        after = row.changed()
        fresh = FolderRow(row.name, "", row.now).changed()
        if after in (row.text, fresh):
            return True
        return self.folder.compare_and_set(row.name, row.text, after)


def open_store(url: str, now: Callable[[], float], *, aio: bool = False) -> Opened:
    """The store of ``folder:///var/lib/locks``."""
    parts = parse(url)
    store = FolderStore(decoded(parts.path), now)

    def backend(protocol: str | None) -> NodeBackend:
        STORE.check_protocol(protocol)
        return NodeBackend(CAPABILITIES, store)

    return Opened(backend, STORE.protocol_of(parts), url, parts=(store,))


STORE = StoreType("folder", {"queue": CAPABILITIES}, open_store)
