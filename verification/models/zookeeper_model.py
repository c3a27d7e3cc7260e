"""A model of ZooKeeper's servers: a tree of nodes, sessions, and watches, in memory.

A session is as pessimistic as a real one may be: its client sends pings a third of the session
timeout apart, and the leader learns late of what is sent in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.requests import (
    CHILDREN,
    DELETED,
    SESSION_ENDED,
    TAKEN,
    Batch,
    BatchResult,
    Check,
    Children,
    Create,
    CreateSequential,
    Delete,
    EnsurePath,
    GetChildren,
    Node,
    Operation,
    Read,
    SetData,
    Transaction,
)
from leaselock._core.contract.backend import WAKE_ALL
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PINGS = 3
CHECKS = 12
# The fraction of a session timeout after which the leader knows of a message: half a tick at most.
LATENCY = 1 / 4
RECONNECT = 0.3


class Session:
    """One session, of one machine."""

    def __init__(self, number: int, now: float) -> None:
        self.number = number
        self.touched = now
        self.watches: set[str] = set()


class Tree:
    """The nodes, and the sequence and transaction numbers."""

    def __init__(self, now: Callable[[], float], fire: Callable[[str], None]) -> None:
        self.now = now
        # Receives each event that a watch reports.
        self.fire = fire
        self.in_transaction = False
        self.nodes: dict[str, Node] = {"/": Node("/", 0, 0, 0.0, b"")}
        self.below: dict[str, dict[str, None]] = {"/": {}}
        self.used: dict[str, int] = {}
        self.zxid = 0

    def make(self, path: str, data: bytes, session: int) -> Node | None:
        """A new node, if its parent exists and is persistent."""
        parent = path.rpartition("/")[0] or "/"
        if parent not in self.nodes or self.is_ephemeral(parent):
            return None
        self._begin()
        node = Node(path, self.zxid, session, self.now(), data, self.zxid)
        self.place(node)
        return node

    def _begin(self) -> None:
        """Begin a transaction, unless this is a part of one."""
        self.zxid += not self.in_transaction

    def transact(self, steps: Sequence[Operation | Check], session: int) -> bool:
        """Do all steps in one transaction, or none."""
        if not self._can(steps):
            return False
        self.zxid += 1
        self.in_transaction = True
        for step in steps:
            if isinstance(step, Create):
                self.make(step.path, step.data, session)
            elif isinstance(step, SetData):
                self.write(step.path, step.data)
            elif isinstance(step, Delete):
                self.remove(step.path)
        self.in_transaction = False
        return True

    def _can(self, steps: Sequence[Operation | Check]) -> bool:
        there = {step.path: step.path in self.nodes for step in steps}
        for step in steps:
            parent = step.path.rpartition("/")[0] or "/"
            if isinstance(step, Create) and (self.is_ephemeral(parent) or parent not in self.nodes):
                return False
            if there[step.path] == isinstance(step, Create):
                return False
            if isinstance(step, Check) and step.version not in (-1, self.nodes[step.path].version):
                return False
            there[step.path] = not isinstance(step, Delete)
        return True

    def write(self, path: str, data: bytes) -> Node | None:
        """Replace the data of a node, if it exists."""
        old = self.nodes.get(path)
        if old is None:
            return None
        self._begin()
        node = old._replace(data=data, written=self.zxid, version=old.version + 1)
        self.put(node)
        return node

    def put(self, node: Node) -> None:
        """Put a node that has other data in place of the same one."""
        self.nodes[node.path] = node
        self.fire(node.path)

    def place(self, node: Node) -> None:
        """Add a node to the tree."""
        parent, _, name = node.path.rpartition("/")
        parent = parent or "/"
        self.below[parent][name] = None
        self.used[parent] = self.used.get(parent, 0) + 1
        self.below[node.path] = {}
        self.nodes[node.path] = node
        self.fire(parent + CHILDREN)

    def read(self, operation: GetChildren | Read, watches: set[str]) -> object:
        """The reply to a read. *watches* are the watched paths of its connection."""
        path = operation.path
        node, children = self.nodes.get(path), isinstance(operation, GetChildren)
        if operation.watch and node is not None:
            watches.add(path + CHILDREN if children else path)
        if node is None or not children:
            return node
        return Children(tuple(self.below[path]), node.written)

    def is_ephemeral(self, path: str) -> bool:
        """Whether the node exists and is ephemeral."""
        return path in self.nodes and self.nodes[path].session != 0

    def numbered(self, path: str) -> str:
        """The path with the next sequence number of its parent."""
        number = (self.used.get(path.rpartition("/")[0], 0) + 2**31) % 2**32 - 2**31
        return f"{path}{number:010d}"

    def remove(self, path: str) -> bool:
        """Delete a node without children."""
        if path not in self.nodes or self.below[path]:
            return False
        parent, _, name = path.rpartition("/")
        self._begin()
        del self.nodes[path], self.below[path], self.below[parent or "/"][name]
        self.used.pop(path, None)
        self.fire(DELETED + path)
        self.fire((parent or "/") + CHILDREN)
        return True


class Model:
    """One server. *after* schedules an action; *running* says whether a machine can send pings."""

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
        self.tree = Tree(now, self._fire)
        self.sessions: dict[str, Session] = {}
        self.dead: set[str] = set()
        self.begun = 0
        # What receives the events of each machine.
        self.receivers: dict[str, Callable[[str], None]] = {}
        # The number of the last batch of each machine, and batches that arrived out of order.
        self.latest: dict[str, int] = {}
        self.early: dict[str, dict[int, tuple[Batch, Callable[[object], None]]]] = {}

    def die(self, machine: str) -> None:
        """The machine sends no more pings."""
        self.dead.add(machine)
        self.receivers.pop(machine, None)

    def is_connected(self, machine: str) -> bool:
        """Whether the machine has a connection, as far as it knows."""
        return machine in self.sessions

    def connect(self, machine: str, reply: Callable[[object], None]) -> None:
        """Reply when the machine has a connection."""
        if self._session(machine) is not None:
            reply(None)

    # --- sessions -------------------------------------------------------------------------------

    def _session(self, machine: str) -> Session | None:
        session = self.sessions.get(machine)
        if session is None and machine not in self.dead:
            self.begun += 1
            session = self.sessions[machine] = Session(self.begun, self.now())
            self._check_session(machine, session)
        return session

    def _check_session(self, machine: str, session: Session) -> None:
        silence = self.now() - session.touched
        if silence >= self.timeout:
            self.expire(machine)
            return
        if silence >= self.timeout / PINGS and self.running(machine) and machine not in self.dead:
            session.touched, silence = self.now(), 0.0
        quiet = max(self.timeout / CHECKS, self.timeout / PINGS - silence)
        self.after(quiet, lambda: self._check_session(machine, session))

    def expire(self, machine: str) -> None:
        """End the session of a machine, and delete its nodes."""
        session = self.sessions.pop(machine)
        self._delete_nodes(session)
        self._notify(machine, f"{SESSION_ENDED}{session.number}")

    def _delete_nodes(self, session: Session) -> None:
        for node in [n for n in self.tree.nodes.values() if n.session == session.number]:
            self.tree.remove(node.path)

    def cut(self, machine: str) -> None:
        """Its connection is lost with all its watches; it reads again over the next one."""
        if machine in self.sessions:
            self.sessions[machine].watches.clear()
            self._notify(machine, WAKE_ALL)

    # --- watches --------------------------------------------------------------------------------

    def _fire(self, event: str) -> None:
        path = event.removeprefix(DELETED)
        for machine, session in self.sessions.items():
            if path in session.watches:
                session.watches.discard(path)
                self._notify(machine, event)

    def _notify(self, machine: str, event: str) -> None:
        receiver = self.receivers.get(machine)
        if receiver is not None:
            receiver(event)

    # --- batches --------------------------------------------------------------------------------

    def ask(self, machine: str, number: int, batch: Batch, reply: Callable[[object], None]) -> None:
        """Execute the batches of a machine in the order of their *number*, as sent. A missing one
        was lost with its connection; the next one is sent over another connection, and then the
        missing one is refused.
        """
        early = self.early.setdefault(machine, {})
        if number <= self.latest.get(machine, 0):
            return
        early[number] = (batch, reply)
        self._advance(machine)
        if early:
            self.after(RECONNECT, lambda: self._skip(machine, number))

    def _skip(self, machine: str, number: int) -> None:
        waiting = self.early[machine]
        if number in waiting:
            self.latest[machine] = min(waiting) - 1
            self._advance(machine)

    def _advance(self, machine: str) -> None:
        early = self.early[machine]
        while (number := self.latest.get(machine, 0) + 1) in early:
            self.latest[machine] = number
            self.execute(machine, *early.pop(number))

    def execute(self, machine: str, batch: Batch, reply: Callable[[object], None]) -> None:
        """Execute one batch now."""
        session = self._session(machine)
        if session is None:
            return
        session.touched = max(session.touched, self.now() - self.timeout * LATENCY)
        if batch.session not in (0, session.number):
            reply(OutcomeUnknown("the session is over"))
            return
        replies = [self.do(operation, session) for operation in batch.operations]
        reply(self.result(session.number, replies))

    def result(self, session: int, replies: Sequence[object]) -> object:
        """The reply to a batch, from those to its operations."""
        refusal = next((reply for reply in replies if isinstance(reply, NotApplied)), None)
        return refusal or BatchResult(session, self.timeout, tuple(replies))

    def do(self, operation: Operation, session: Session) -> object:
        """Execute one operation; return its reply."""
        tree, path = self.tree, operation.path
        if isinstance(operation, CreateSequential):
            if tree.is_ephemeral(path.rpartition("/")[0]):
                return NotApplied("an ephemeral node has no children")
            return tree.make(tree.numbered(path), operation.data, session.number)
        if isinstance(operation, Create):
            taken = path in tree.nodes
            return TAKEN if taken else tree.make(path, operation.data, session.number)
        if isinstance(operation, (GetChildren, Read)):
            return tree.read(operation, session.watches)
        if isinstance(operation, Delete):
            return tree.remove(path)
        if isinstance(operation, SetData):
            return tree.write(path, operation.data)
        if isinstance(operation, Transaction):
            return tree.transact(operation.steps, session.number)
        if isinstance(operation, EnsurePath):
            self._ensure(path)
        return None

    def _ensure(self, path: str) -> None:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            part = "/".join(parts[:end])
            if part not in self.tree.nodes:
                self.tree.make(part, b"", 0)
