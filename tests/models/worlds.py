"""Two worlds that must give the same answers: a real store, and the same rules on a table.

Law: a world is handed the time, so that both live at the same instant, and tells what each client
hears. What is compared is whole answers, tokens and instants included: nothing is rounded away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tests.models.sqlite_model import Model

from leaselock.backends.memory.store import Room, Table
from leaselock.backends.memory.store import Store as MemoryStore
from leaselock.backends.sqlite.file import File
from leaselock.backends.sqlite.store import Listener
from leaselock.backends.sqlite.store import Store as FileStore
from leaselock.core.backend import WAKE_ALL, Acquire, Claim, LifetimeSet, Listen

if TYPE_CHECKING:
    from pathlib import Path

SENTINEL = 999
# Later than any real time of day, so that no row is ever old enough to be pruned.
NEW_CENTURY = 4_102_444_800_000_000


class Clock:
    """The time of both worlds: seconds of the boot clock, and micros of the time of day."""

    def __init__(self) -> None:
        self.seconds = 1000.0
        self.micros = NEW_CENTURY

    def now(self) -> float:
        return self.seconds

    def wall(self) -> int:
        return self.micros

    def time_ns(self) -> int:
        """As the module `time` has it."""
        return self.micros * 1000


class World(Protocol):
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
    ear: Listener


class Files:
    """The SQLite store: each client has the file open for itself."""

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
        # The descriptors are only the kernel's; whether there are any is the answer.
        if isinstance(reply, LifetimeSet) and reply.descriptors:
            assert (reply.held, request.lifetime) == (True, "client")
            return LifetimeSet(True, ())
        assert not (isinstance(reply, LifetimeSet) and reply.held and request.lifetime == "client")
        return reply

    def heard(self, client: str) -> list[str]:
        file, _, ear = self.of(client)
        if file.liveness is None:
            return []
        # With a message under way for sure, the ear answers at once, and with all there is.
        file.liveness.registry.notify(client, SENTINEL)
        words = ear.call(Listen(client), self.clock.now())
        assert isinstance(words, tuple)
        return [word for word in words if word != f"{client}:{SENTINEL}"]

    def die(self, client: str, *, violently: bool) -> None:
        file = self.of(client).file
        if violently and file.liveness is not None:
            # What the kernel does: the locks are gone, the files stay.
            file.liveness.close_descriptors()
            file.liveness = None
        self.clients.pop(client).store.close()

    def end(self) -> None:
        for client in list(self.clients):
            self.die(client, violently=False)


class FilesModel:
    """What the simulation takes for the SQLite store."""

    def __init__(self, clock: Clock) -> None:
        self.model = Model(clock.now, clock.wall)

    def answer(self, client: str, request: Any) -> object:
        replies: list[object] = []
        self.model.ask(client, request, replies.append)
        return replies[0]

    def heard(self, client: str) -> list[str]:
        return self.model.unheard.pop(client, [])

    def die(self, client: str, *, violently: bool) -> None:
        self.model.die(client)

    def end(self) -> None:
        pass


class Memory:
    """The memory store."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.room = Room(clock.now)
        self.room.table.micros = clock.wall
        self.clients: dict[str, MemoryStore] = {}

    def of(self, client: str) -> MemoryStore:
        if client not in self.clients:
            store = self.clients[client] = MemoryStore("", self.clock.now)
            store.room = self.room
        return self.clients[client]

    def answer(self, client: str, request: Any) -> object:
        return self.of(client).call(request, self.clock.now())

    def heard(self, client: str) -> list[str]:
        ear, words = self.room.messages.get(client), []
        while ear is not None and not ear.empty():
            word = ear.get()
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
    """The table itself, in a world where every death is told to everyone."""

    def __init__(self, clock: Clock) -> None:
        self.messages: dict[str, list[str]] = {}
        self.table = Table(
            clock.now, clock.wall, self.messages.__contains__, self._notify, self._watch
        )

    def _notify(self, client: str, holder: str) -> None:
        if client in self.messages:
            self.messages[client].append(holder)

    def _watch(self, client: str, watched: str) -> None:
        """Whoever waits hears of every death."""

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

    def end(self) -> None:
        pass
