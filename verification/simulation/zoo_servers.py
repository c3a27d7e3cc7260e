"""One server of an ensemble, and the clients connected to it; in memory, for simulations.

Invariants: a write is answered when the server has applied every write before it; a read, from what
the server has applied. A server answers each client in the order of its requests.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from verification.models.zookeeper_model import Tree

from leaselock._backends.zookeeper.requests import DELETED, GetChildren, Node, Read

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.zoo_ensemble import Ensemble

    from leaselock._backends.zookeeper.requests import Batch, Operation

READS = (GetChildren, Read)


class SessionEnded(NamedTuple):
    """The log record of the end of a session."""

    session: int


class DataReplaced(NamedTuple):
    """The log record of new data."""

    node: Node


class CommittedTree(Tree):
    """The nodes as committed by a majority, and the log of all changes."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now, lambda event: None)
        self.log: list[Node | str | SessionEnded | DataReplaced] = []

    def place(self, node: Node) -> None:
        """Add a node to the tree."""
        super().place(node)
        self.log.append(node)

    def put(self, node: Node) -> None:
        """Put a node that has other data in place of the same one."""
        super().put(node)
        self.log.append(DataReplaced(node))

    def remove(self, path: str) -> bool:
        """Delete a node without children."""
        removed = super().remove(path)
        if removed:
            self.log.append(path)
        return removed


class InFlight:
    """A batch on its way."""

    def __init__(self, batch: Batch, reply: Callable[[object], None]) -> None:
        self.batch = batch
        self.reply = reply
        self.replies: list[object] = []


class PendingOperation:
    """One operation of a batch. The leader says *after* how many changes it is answered."""

    __slots__ = ("after", "in_flight", "operation", "reply")

    def __init__(self, in_flight: InFlight, operation: Operation) -> None:
        self.in_flight = in_flight
        self.operation = operation
        self.reply: object = None
        self.after: int | None = 0 if isinstance(operation, READS) else None


class Link:
    """One connection of a machine; *server* is None after it was cut."""

    def __init__(
        self, machine: str, session: int, server: Server | None, seen: int, since: float
    ) -> None:
        self.machine = machine
        self.session = session
        self.server = server
        # How many changes its client has seen. A server that has applied fewer does not answer.
        self.seen = seen
        self.since = since
        # Whether messages over it are lost, which its client has not noticed yet.
        self.mute = False
        self.pending: deque[PendingOperation] = deque()
        self.watches: set[str] = set()


class Server:
    """One server: its tree, its connections, and the writes to be forwarded to the leader."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.tree = Tree(ensemble.now, self._fire)
        self.applied = 0
        self.due = 0.0
        self.up = True
        self.partitioned = False
        self.links: dict[str, Link] = {}
        self.outbox: list[tuple[Link, PendingOperation]] = []

    def apply(self, end: int) -> None:
        """Apply the changes of the log up to *end*."""
        for change in self.ensemble.tree.log[self.applied : end]:
            self.applied += 1
            if isinstance(change, Node):
                self.tree.place(change)
            elif isinstance(change, str):
                self.tree.remove(change)
            elif isinstance(change, DataReplaced):
                self.tree.put(change.node)
            else:
                self._disconnect(change.session)
        for link in list(self.links.values()):
            self.answer(link)

    def answer(self, link: Link) -> None:
        """Answer the operations that are due, in order."""
        while link.pending and self._is_due(link):
            one = link.pending.popleft()
            if isinstance(one.operation, READS):
                one.reply = self.tree.read(one.operation, link.watches)
            in_flight = one.in_flight
            in_flight.replies.append(one.reply)
            if len(in_flight.replies) == len(in_flight.batch.operations):
                link.seen = self.applied
                in_flight.reply(self.ensemble.result(link.session, in_flight.replies))

    def _is_due(self, link: Link) -> bool:
        after = link.pending[0].after
        return after is not None and self.applied >= max(after, link.seen) and not link.mute

    def _fire(self, event: str) -> None:
        path = event.removeprefix(DELETED)
        for link in self.links.values():
            if path in link.watches:
                link.watches.discard(path)
                self.ensemble.send_event(link, event)

    def _disconnect(self, session: int) -> None:
        for link in [link for link in self.links.values() if link.session == session]:
            self.ensemble.cut(link.machine)

    def drop_clients(self) -> None:
        """Cut all connections, and lose the writes that were not forwarded."""
        self.outbox = []
        for machine in list(self.links):
            self.ensemble.cut(machine)
