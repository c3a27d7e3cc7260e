"""A model of the SQLite file and of the kernel: the rules, on a table in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.memory.store import MemoryRow, Table
from leaselock._core.contract.backend import WAKE_ALL, Acquire, Listen, Watch
from leaselock._core.rows import rules

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.contract.backend import LockState


class Model:
    """A file, and the clients on its machine.

    A *machine* of the simulation may be several clients in turn; it dies as a whole.
    """

    def __init__(self, now: Callable[[], float], micros: Callable[[], int]) -> None:
        self.table = Table(now, micros, self.alive, self.notify, self.observe_client)
        # A machine dies as a whole, so a client that lives has its own process.
        self.table.process_lives = self.alive
        # Incremented with each possible change.
        self.changes = 0
        self.machines: dict[str, str] = {}
        self.dead: set[str] = set()
        self.observers: dict[str, set[str]] = {}
        self.listeners: dict[str, Callable[[object], None]] = {}
        self.undelivered: dict[str, list[str]] = {}

    def alive(self, client: str) -> bool:
        """Whether the kernel lock of the client is held."""
        return client in self.machines

    def notify(self, client: str, holder: str) -> None:
        """Write a message to the client's fifo."""
        listener = self.listeners.pop(client, None)
        if listener is not None:
            listener((holder,))
        elif self.alive(client):
            self.undelivered.setdefault(client, []).append(holder)

    def observe_client(self, client: str, other: str) -> None:
        """Notify *client* when *other* dies, or at once if it is dead."""
        if self.alive(other):
            self.observers.setdefault(other, set()).add(client)
        else:
            self.notify(client, WAKE_ALL)

    def state(self, name: str) -> LockState:
        """What is shown of a lock."""
        return rules.state(MemoryRow(self.table, "", name), name)

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Execute a request to the store or to the listener."""
        self.changes += 1
        if isinstance(request, Listen):
            self._begin(machine, request.client)
            self._listen(request.client, reply)
        elif machine not in self.dead:
            client = request.claim.client if isinstance(request, (Acquire, Watch)) else ""
            self._begin(machine, client)
            reply(self.table.answer(client or self._client(machine), request))

    def _client(self, machine: str) -> str:
        return next((c for c, m in reversed(self.machines.items()) if m == machine), "")

    def _begin(self, machine: str, client: str) -> None:
        # Requests of a dead process are not executed, because they cross no network.
        if client and machine not in self.dead:
            self.machines.setdefault(client, machine)

    def _listen(self, client: str, reply: Callable[[object], None]) -> None:
        undelivered = self.undelivered.pop(client, None)
        if undelivered:
            reply(tuple(undelivered))
        else:
            self.listeners[client] = reply

    def die(self, machine: str) -> None:
        """A process dies: the kernel releases its locks, and notifies the watching clients."""
        self.dead.add(machine)
        self.changes += 1
        for client in [c for c, m in self.machines.items() if m == machine]:
            del self.machines[client]
            self.listeners.pop(client, None)
            for observer in sorted(self.observers.pop(client, ())):
                self.notify(observer, WAKE_ALL)
