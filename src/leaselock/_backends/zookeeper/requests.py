"""Requests to a ZooKeeper connection: batches of operations, and what a session needs besides.

The operations of a batch are sent together and answered in their order. A session is first in,
first out: an operation is done after those before it, in the same batch and in earlier ones. A
reply can be lost only together with all later ones; the outcome of the batch is then unknown.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from leaselock._core.contract.effects import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

# The reply to `Create` where the node already exists.
TAKEN = "taken"
# How many names are inspected at once. A batch is answered as a whole, and others wait for it.
AT_ONCE = 500
# Precedes the path in the event of a deleted node.
DELETED = "-"
# Follows the path in the event of a child that was created or deleted.
CHILDREN = "/"
# Precedes the number of the session in the event of its end.
SESSION_ENDED = "!"


class CreateSequential(NamedTuple):
    """Create an ephemeral node, with a sequence number appended to its path by the server.

    Replies the Node, or None without a parent node.
    """

    path: str
    data: bytes


class Create(NamedTuple):
    """Create an ephemeral node. Replies the Node, None without a parent node, or TAKEN."""

    path: str
    data: bytes


class EnsurePath(NamedTuple):
    """Create the persistent nodes of a path that do not exist. Its reply says nothing."""

    path: str


class GetChildren(NamedTuple):
    """Replies the Children, or None if there is no such node. With *watch*, the next creation or
    deletion of a child is an event: the path, followed by CHILDREN.
    """

    path: str
    watch: bool = False


class Read(NamedTuple):
    """Replies the Node, or None. With *watch*, the next change of the node is an event: its path,
    preceded by DELETED if it was deleted.
    """

    path: str
    watch: bool = False


class Delete(NamedTuple):
    """Delete a node. Replies whether it existed; False, too, if it has children."""

    path: str


class SetData(NamedTuple):
    """Replace the data of a node. Replies the Node, or None if there is no such node."""

    path: str
    data: bytes


class Check(NamedTuple):
    """In a Transaction: that the node exists, and has this version unless that is -1."""

    path: str
    version: int = -1


class Transaction(NamedTuple):
    """Do all of these or none, in one step. Replies whether they were done."""

    steps: tuple[Create | Delete | SetData | Check, ...]

    @property
    def path(self) -> str:
        """The path of the first step."""
        return self.steps[0].path


class QuorumBarrier(NamedTuple):
    """Make later reads of this session see every write committed so far. Replies None.

    A majority of the servers takes part, so the reply also proves that the session is alive.
    """

    path: str


Operation = (
    CreateSequential
    | Create
    | EnsurePath
    | GetChildren
    | Read
    | Delete
    | SetData
    | Transaction
    | QuorumBarrier
)
WRITES = (CreateSequential, Create, Delete, EnsurePath, SetData, Transaction)


class Node(NamedTuple):
    """A node as a server has it."""

    path: str
    token: int
    """The id of the transaction that created it: greater than that of every older node."""
    session: int
    """The session of an ephemeral node, which is deleted with it; 0 for a persistent node."""
    created: float
    """Unix time, by the server's clock."""
    data: bytes
    written: int = 0
    """The id of the transaction that wrote its data last; 0 if the server did not say."""
    version: int = 0
    """How often its data was replaced."""


def rewriting(node: Node) -> tuple[Check, SetData]:
    """The steps of a transaction that write a node again with the data that it has."""
    return Check(node.path, node.version), SetData(node.path, node.data)


class Children(NamedTuple):
    """The children of a node."""

    names: tuple[str, ...]
    written: int
    """The id of the transaction that wrote the node's data last."""


def in_parts(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """The names in parts of which each fits into one batch, beside the requests of others."""
    for first in range(0, len(names), AT_ONCE):
        yield names[first : first + AT_ONCE]


def names_of(reply: object) -> tuple[str, ...]:
    """The names in a reply to GetChildren; none without a node."""
    return reply.names if isinstance(reply, Children) else ()


class BatchResult(NamedTuple):
    """The replies to a batch, and the session that sent it."""

    session: int
    timeout: float
    """Seconds without a message from the client after which the servers end its session."""
    replies: tuple[object, ...]


class Batch(
    NamedTuple("Batch", [("operations", tuple[Operation, ...]), ("session", int)]),
    Request[BatchResult],
):
    """Operations to send together, in the given session only, or in any session if that is 0."""

    __slots__ = ()


class Connect(NamedTuple("Connect", []), Request[None]):
    """Wait until the client is connected to a server."""

    __slots__ = ()


class ServerStatus(NamedTuple("ServerStatus", []), Request[str]):
    """Reply what the connected server says to the command ``srvr``."""

    __slots__ = ()


class CloseSession(NamedTuple("CloseSession", []), Request[None]):
    """End the session. The servers delete its ephemeral nodes."""

    __slots__ = ()


class Mailbox:
    """The events that one backend has not read yet. Any thread may add one."""

    def __init__(self) -> None:
        self.events: deque[str] = deque()
        self.notify: Callable[[], None] | None = None

    def put(self, event: str) -> None:
        """Add an event, and wake the reader."""
        self.events.append(event)
        self.wake()

    def wake(self) -> None:
        """End a wait for events, if there is one."""
        notify = self.notify
        if notify is not None:
            notify()

    def take(self) -> tuple[str, ...]:
        """Remove and return all events."""
        return tuple(self.events.popleft() for _ in range(len(self.events)))


class AwaitEvents(NamedTuple("AwaitEvents", [("mailbox", Mailbox)]), Request[tuple[str, ...]]):
    """Wait for events: paths of watched nodes, the end of a session, or WAKE_ALL. Replies none
    after the deadline.
    """

    __slots__ = ()
