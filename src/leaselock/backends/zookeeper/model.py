"""What an ensemble does with flights: a tree of nodes, sessions, and watches, in memory.

For simulations and for comparison with the real servers; nothing else imports it.

A session is as pessimistic as a real one may be: pings of its client come a third of its length
apart, and of what is asked in between the leader learns late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.zookeeper.requests import (
    GONE,
    TAKEN,
    Children,
    Create,
    Delete,
    Ensure,
    Flight,
    Landed,
    Node,
    Operation,
    Poke,
    Put,
    Read,
)
from leaselock.core.backend import WAKE_ALL, Listen
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PINGS = 3
LOOKS = 12
TELLINGS = 6
# How much of a session may pass until the leader knows of a sign of life: half a tick, at most.
UNTOLD = 1 / 4
RECONNECT = 0.3


class Session:
    """One session, of one machine."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.touched = now
        self.watches: set[str] = set()


class Tree:
    """The nodes, and the numbers that the servers give."""

    def __init__(self, now: Callable[[], float], gone: Callable[[str], None]) -> None:
        self.now = now
        self.gone = gone
        self.nodes: dict[str, Node] = {"/": Node("/", 0, 0, 0.0, b"")}
        self.below: dict[str, dict[str, None]] = {"/": {}}
        self.used: dict[str, int] = {}
        self.zxid = 0

    def make(self, path: str, data: bytes, session: int) -> Node | None:
        """A node, if its parent is there and lasts."""
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.nodes or self.is_fleeting(parent):
            return None
        self.zxid += 1
        node = Node(path, self.zxid, session, self.now(), data)
        self.place(node)
        return node

    def place(self, node: Node) -> None:
        """Put a node where it belongs."""
        parent, _, name = node.path.rpartition("/")
        parent = parent or "/"
        self.below[parent][name] = None
        self.used[parent] = self.used.get(parent, 0) + 1
        self.below[node.path] = {}
        self.nodes[node.path] = node

    def seen(self, operation: Children | Read, watches: set[str]) -> object:
        """The answer to who looks; *watches* is what its connection watches."""
        path = operation.path
        if isinstance(operation, Children):
            return tuple(self.below[path]) if path in self.nodes else None
        if operation.watch and path in self.nodes:
            watches.add(path)
        return self.nodes.get(path)

    def is_fleeting(self, path: str) -> bool:
        """Whether it is there, and ends with its session."""
        return path in self.nodes and self.nodes[path].session != 0

    def numbered(self, path: str) -> str:
        """The path with the number that is next below its parent."""
        number = (self.used.get(path.rpartition("/")[0], 0) + 2**31) % 2**32 - 2**31
        return f"{path}{number:010d}"

    def remove(self, path: str) -> bool:
        """Delete a node that has none below it."""
        if path not in self.nodes or self.below[path]:
            return False
        parent, _, name = path.rpartition("/")
        self.zxid += 1
        del self.nodes[path], self.below[path], self.below[parent or "/"][name]
        self.used.pop(path, None)
        self.gone(path)
        return True


class Model:
    """The ensemble; *after* lets it act later, *running* says whether a machine can ping."""

    def __init__(
        self,
        now: Callable[[], float],
        after: Callable[[float, Callable[[], None]], None],
        running: Callable[[str], bool],
        timeout: float,
    ) -> None:
        self.now = now
        self.after = after
        self.running = running
        self.timeout = timeout
        self.tree = Tree(now, self._gone)
        self.sessions: dict[str, Session] = {}
        self.dead: set[str] = set()
        self.begun = 0
        self.latest: dict[str, int] = {}
        self.lines: dict[str, dict[int, tuple[Flight, Callable[[object], None]]]] = {}
        self.ears: dict[str, list[Callable[[object], None]]] = {}
        self.unheard: dict[str, list[list[Any]]] = {}

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """One request of a machine, arriving now."""
        if isinstance(request, Listen):
            self._listen(machine, reply)
        elif isinstance(request, Poke):
            self._tell(machine, ".")
            reply(None)
        else:
            self._fly(machine, request, reply)

    def die(self, machine: str) -> None:
        """It will ping no more."""
        self.dead.add(machine)
        self.ears.pop(machine, None)

    # --- sessions -------------------------------------------------------------------------------

    def _session(self, machine: str) -> Session | None:
        session = self.sessions.get(machine)
        if session is None and machine not in self.dead:
            self.begun += 1
            session = self.sessions[machine] = Session(self.begun, self.now())
            self._look_after(machine, session)
        return session

    def _look_after(self, machine: str, session: Session) -> None:
        silence = self.now() - session.touched
        if silence >= self.timeout:
            self.expire(machine)
            return
        if silence >= self.timeout / PINGS and self.running(machine) and machine not in self.dead:
            session.touched, silence = self.now(), 0.0
        quiet = max(self.timeout / LOOKS, self.timeout / PINGS - silence)
        self.after(quiet, lambda: self._look_after(machine, session))

    def expire(self, machine: str) -> None:
        """End its session, and with it its nodes."""
        self._bury(self.sessions.pop(machine))
        self._tell(machine, WAKE_ALL)

    def _bury(self, session: Session) -> None:
        for node in [n for n in self.tree.nodes.values() if n.session == session.number]:
            self.tree.remove(node.path)

    def cut(self, machine: str) -> None:
        """Its connection is lost, and what it watched with it; over the next one it looks again."""
        if machine in self.sessions:
            self.sessions[machine].watches.clear()
            self._tell(machine, WAKE_ALL)

    # --- watches --------------------------------------------------------------------------------

    def _gone(self, path: str) -> None:
        for machine, session in self.sessions.items():
            if path in session.watches:
                session.watches.discard(path)
                self._tell(machine, GONE + path)

    def _tell(self, machine: str, word: str) -> None:
        self.unheard.setdefault(machine, []).append([word, TELLINGS])
        self._say(machine, self.ears.pop(machine, []))

    def _listen(self, machine: str, reply: Callable[[object], None]) -> None:
        ears = [*self.ears.pop(machine, []), reply]
        if machine in self.unheard:
            self._say(machine, ears)
        else:
            self.ears[machine] = ears

    def _say(self, machine: str, ears: list[Callable[[object], None]]) -> None:
        """What is said to one who has stopped listening is not heard, so all is said several times,
        to all: a real ear is in the same process, and loses nothing.
        """
        if not ears:
            return
        words = self.unheard.pop(machine)
        left = [[word, times - 1] for word, times in words if times > 1]
        if left:
            self.unheard[machine] = left
        for ear in ears:
            ear(tuple(word for word, _ in words))

    # --- flights --------------------------------------------------------------------------------

    def _fly(self, machine: str, flight: Flight, reply: Callable[[object], None]) -> None:
        """In the order in which they were sent. One that does not come was lost with its
        connection, and what follows it comes over the next one; from then on it would be refused.
        """
        line = self.lines.setdefault(machine, {})
        if flight.number <= self.latest.get(machine, 0):
            return
        line[flight.number] = (flight, reply)
        self._advance(machine)
        if line:
            self.after(RECONNECT, lambda: self._skip(machine, flight.number))

    def _skip(self, machine: str, number: int) -> None:
        waiting = self.lines[machine]
        if number in waiting:
            self.latest[machine] = min(waiting) - 1
            self._advance(machine)

    def _advance(self, machine: str) -> None:
        line = self.lines[machine]
        while (number := self.latest.get(machine, 0) + 1) in line:
            self.latest[machine] = number
            self._land(machine, *line.pop(number))

    def _land(self, machine: str, flight: Flight, reply: Callable[[object], None]) -> None:
        session = self._session(machine)
        if session is None:
            return
        session.touched = max(session.touched, self.now() - self.timeout * UNTOLD)
        if flight.session not in (0, session.number):
            reply(OutcomeUnknown("the session is over"))
            return
        answers = [self.do(operation, session) for operation in flight.operations]
        reply(self.landing(session.number, answers))

    def landing(self, session: int, answers: Sequence[object]) -> object:
        """What a flight brings."""
        refusal = next((answer for answer in answers if isinstance(answer, NotApplied)), None)
        return refusal or Landed(session, self.timeout, tuple(answers))

    def do(self, operation: Operation, session: Session) -> object:
        """The answer to one operation."""
        tree, path = self.tree, operation.path
        if isinstance(operation, Create):
            if tree.is_fleeting(path.rpartition("/")[0]):
                return NotApplied("a node that ends with its session has none below it")
            return tree.make(tree.numbered(path), operation.data, session.number)
        if isinstance(operation, Put):
            taken = path in tree.nodes
            return TAKEN if taken else tree.make(path, operation.data, session.number)
        if isinstance(operation, (Children, Read)):
            return tree.seen(operation, session.watches)
        if isinstance(operation, Delete):
            return tree.remove(path)
        if isinstance(operation, Ensure):
            self._ensure(path)
        return None

    def _ensure(self, path: str) -> None:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            part = "/".join(parts[:end])
            if part not in self.tree.nodes:
                self.tree.make(part, b"", 0)
