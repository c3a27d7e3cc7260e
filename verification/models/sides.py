"""The two sides of a comparison: a real store, and the same rules on a table in memory.

Both sides use the time of the test, and report the messages of each client. Complete answers are
compared, including tokens and times.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from verification.models.sqlite_model import Model

from leaselock._backends.memory.store import SharedDatabase, Table
from leaselock._backends.memory.store import Store as MemoryStore
from leaselock._backends.sqlite.file import File
from leaselock._backends.sqlite.store import Listener
from leaselock._backends.sqlite.store import Store as FileStore
from leaselock._core.contract.backend import (
    WAKE_ALL,
    Acquire,
    Claim,
    CollectGarbage,
    LifetimeSet,
    Listen,
)
from leaselock._core.contract.effects import Signal

if TYPE_CHECKING:
    from pathlib import Path

SENTINEL = 999
# In the future, so that no row is ever old enough to be pruned.
NEW_CENTURY = 4_102_444_800_000_000


class Clock:
    """The time of both sides: seconds of the boot clock, and microseconds of the wall clock."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.micros = NEW_CENTURY

    def now(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return self.micros

    def time_ns(self) -> int:
        """The function of the module `time`."""
        return self.micros * 1000


class Side(Protocol):
    """A store with its clients."""

    def answer(self, client: str, request: Any) -> object: ...

    def heard(self, client: str) -> list[str]: ...

    def die(self, client: str, *, violently: bool) -> None: ...

    def end(self) -> None: ...


def claim_of(client: str, name: str, serial: int, lease: float) -> Claim:
    return Claim(name, f"{client}:{serial}", client, lease, f"about {serial}", serial / 8)


class _Client(NamedTuple):
    file: File
    store: FileStore
    listener: Listener


class Files:
    """The SQLite store; each client has its own open file."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self.clock = clock
        self.clients: dict[str, _Client] = {}

    def of(self, client: str) -> _Client:
        if client not in self.clients:
            file = File(str(self.path), self.clock.now)
            self.clients[client] = _Client(file, FileStore(file), Listener(file))
        return self.clients[client]

    def answer(self, client: str, request: Any) -> object:
        reply = self.of(client).store.call(request, self.clock.now())
        # The reply contains descriptors; only their presence is compared.
        if isinstance(reply, LifetimeSet) and reply.descriptors:
            assert (reply.held, request.lifetime) == (True, "client")
            return LifetimeSet(True, ())
        assert not (isinstance(reply, LifetimeSet) and reply.held and request.lifetime == "client")
        return reply

    def heard(self, client: str) -> list[str]:
        file, _, listener = self.of(client)
        if file.liveness is None:
            return []
        # With this message the listener answers at once, with all messages so far.
        file.liveness.registry.notify(client, SENTINEL)
        words = listener.call(Listen(client, Signal()), self.clock.now() + 60.0)
        assert isinstance(words, tuple)
        return [word for word in words if word != f"{client}:{SENTINEL}"]

    def die(self, client: str, *, violently: bool) -> None:
        file = self.of(client).file
        if violently and file.liveness is not None:
            # As the kernel does: the locks are released, the files stay.
            file.liveness.close_descriptors()
            file.liveness = None
        self.clients.pop(client).store.close()

    def end(self) -> None:
        for client in list(self.clients):
            self.die(client, violently=False)


class FilesModel:
    """The model that the simulation uses for the SQLite store."""

    def __init__(self, clock: Clock) -> None:
        self.model = Model(clock.now, clock.wall)

    def answer(self, client: str, request: Any) -> object:
        replies: list[object] = []
        self.model.ask(client, request, replies.append)
        return replies[0]

    def heard(self, client: str) -> list[str]:
        return self.model.undelivered.pop(client, [])

    def die(self, client: str, *, violently: bool) -> None:
        self.model.die(client)

    def end(self) -> None:
        pass


class Memory:
    """The memory store."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.database = SharedDatabase(clock.now)
        self.database.table.micros = clock.wall
        self.clients: dict[str, MemoryStore] = {}

    def of(self, client: str) -> MemoryStore:
        if client not in self.clients:
            store = self.clients[client] = MemoryStore("", self.clock.now)
            store.database = self.database
        return self.clients[client]

    def answer(self, client: str, request: Any) -> object:
        return self.of(client).call(request, self.clock.now())

    def heard(self, client: str) -> list[str]:
        listener, words = self.database.messages.get(client), []
        while listener is not None and not listener.empty():
            word = listener.get()
            assert word is not None
            words.append(word)
        return words

    def die(self, client: str, *, violently: bool) -> None:
        store = self.of(client)
        store.close()
        del self.clients[client]

    def end(self) -> None:
        pass


class TableAlone:
    """The table alone; every death is reported to all clients."""

    def __init__(self, clock: Clock) -> None:
        self.messages: dict[str, list[str]] = {}
        self.table = Table(
            clock.now, clock.wall, self.messages.__contains__, self._notify, self._observe_client
        )

    def _notify(self, client: str, holder: str) -> None:
        if client in self.messages:
            self.messages[client].append(holder)

    def _observe_client(self, client: str, other: str) -> None:
        """Notify all waiters of the death."""

    def answer(self, client: str, request: Any) -> object:
        if isinstance(request, Acquire):
            self.messages.setdefault(client, [])
        return self.table.answer(client if client in self.messages else "", request)

    def heard(self, client: str) -> list[str]:
        words = self.messages.get(client, [])
        if words:
            self.messages[client] = []
        return words

    def die(self, client: str, *, violently: bool) -> None:
        self.messages.pop(client, None)
        for words in self.messages.values():
            words.append(WAKE_ALL)
        # A client that goes leaves no unused names in memory.
        self.table.answer("", CollectGarbage(None))

    def end(self) -> None:
        pass
