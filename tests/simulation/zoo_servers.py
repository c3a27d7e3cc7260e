"""One server of an ensemble, and those who are connected to it; in memory, for simulations.

Law: what is to be agreed on is answered when the server has all that was agreed on before; what
is read, by what the server has. Each client is answered in the order in which it asked.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from leaselock.backends.zookeeper.model import Tree
from leaselock.backends.zookeeper.requests import GONE, Children, Node, Read

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.zoo_ensemble import Ensemble

    from leaselock.backends.zookeeper.requests import Flight, Operation

READS = (Children, Read)


class Ended(NamedTuple):
    """That a session has ended, as the servers tell one another."""

    session: int


class Agreed(Tree):
    """The nodes as a majority has them, and all changes that made them."""

    def __init__(self, now: Callable[[], float]) -> None:
        super().__init__(now, lambda path: None)
        self.log: list[Node | str | Ended] = []

    def place(self, node: Node) -> None:
        """Put a node where it belongs."""
        super().place(node)
        self.log.append(node)

    def remove(self, path: str) -> bool:
        """Delete a node that has none below it."""
        gone = super().remove(path)
        if gone:
            self.log.append(path)
        return gone


class Aloft:
    """A flight that is under way."""

    def __init__(self, flight: Flight, reply: Callable[[object], None]) -> None:
        self.flight = flight
        self.reply = reply
        self.answers: list[object] = []


class Asked:
    """One operation of it; *after* how many changes it is answered, the leader says."""

    __slots__ = ("after", "aloft", "answer", "operation")

    def __init__(self, aloft: Aloft, operation: Operation) -> None:
        self.aloft = aloft
        self.operation = operation
        self.answer: object = None
        self.after: int | None = 0 if isinstance(operation, READS) else None


class Link:
    """One connection of a machine; to no server, once it is cut."""

    def __init__(
        self, machine: str, session: int, server: Server | None, seen: int, since: float
    ) -> None:
        self.machine = machine
        self.session = session
        self.server = server
        # So many changes has its client seen, and no server that has fewer answers.
        self.seen = seen
        self.since = since
        # Whether what is sent over it vanishes, and its client does not know yet.
        self.mute = False
        self.line: deque[Asked] = deque()
        self.watches: set[str] = set()


class Server:
    """One of the ensemble: what it has, who is connected, and what the leader is yet to hear."""

    def __init__(self, ensemble: Ensemble) -> None:
        self.ensemble = ensemble
        self.tree = Tree(ensemble.now, self._gone)
        self.applied = 0
        self.due = 0.0
        self.up = True
        self.parted = False
        self.links: dict[str, Link] = {}
        self.outbox: list[tuple[Link, Asked]] = []

    def apply(self, end: int) -> None:
        """Follow, up to so many changes."""
        for change in self.ensemble.tree.log[self.applied : end]:
            self.applied += 1
            if isinstance(change, Node):
                self.tree.place(change)
            elif isinstance(change, str):
                self.tree.remove(change)
            else:
                self._hang_up(change.session)
        for link in list(self.links.values()):
            self.answer(link)

    def answer(self, link: Link) -> None:
        """Answer what can be answered, in order."""
        while link.line and self._is_due(link):
            asked = link.line.popleft()
            if isinstance(asked.operation, READS):
                asked.answer = self.tree.seen(asked.operation, link.watches)
            asked.aloft.answers.append(asked.answer)
            if len(asked.aloft.answers) == len(asked.aloft.flight.operations):
                link.seen = self.applied
                asked.aloft.reply(self.ensemble.landing(link.session, asked.aloft.answers))

    def _is_due(self, link: Link) -> bool:
        after = link.line[0].after
        return after is not None and self.applied >= max(after, link.seen) and not link.mute

    def _gone(self, path: str) -> None:
        for link in self.links.values():
            if path in link.watches:
                link.watches.discard(path)
                self.ensemble.tell(link, GONE + path)

    def _hang_up(self, session: int) -> None:
        for link in [link for link in self.links.values() if link.session == session]:
            self.ensemble.cut(link.machine)

    def forsake(self) -> None:
        """It serves nobody, and what it has not passed on is lost."""
        self.outbox = []
        for machine in list(self.links):
            self.ensemble.cut(machine)
