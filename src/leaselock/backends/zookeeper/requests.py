"""Requests to a ZooKeeper connection: batches of operations, and what a session needs besides.

The operations of a batch are sent together and answered in their order. A session is first in,
first out: an operation is done after those before it, in the same batch and in earlier ones. A
reply can be lost only together with all later ones; the outcome of the batch is then unknown.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from leaselock.core.effects import Request

if TYPE_CHECKING:
    from collections.abc import Callable

# The reply to `Create` where the node already exists.
TAKEN = "taken"
# Precedes the path in the event of a deleted node.
DELETED = "-"


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
    """Create the persistent nodes of a path that do not exist. Replies None."""

    path: str


class GetChildren(NamedTuple):
    """Replies the names of the children as a tuple, or None if there is no such node."""

    path: str


class Read(NamedTuple):
    """Replies the Node, or None. With *watch*, the next change of the node is an event: its path,
    preceded by DELETED if it was deleted.
    """

    path: str
    watch: bool = False


class Delete(NamedTuple):
    """Delete a node. Replies whether it existed; False, too, if it has children."""

    path: str


class QuorumBarrier(NamedTuple):
    """Make later reads of this session see every write committed so far. Replies None.

    A majority of the servers takes part, so the reply also proves that the session is alive.
    """

    path: str


Operation = CreateSequential | Create | EnsurePath | GetChildren | Read | Delete | QuorumBarrier
WRITES = (CreateSequential, Create, Delete, EnsurePath)


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


class BatchResult(NamedTuple):
    """The replies to a batch, and the session that sent it."""

    session: int
    timeout: float
    """The servers end the session after so many seconds without a message from it."""
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
    """Wait for events: paths of watched nodes, or WAKE_ALL. Replies none after the deadline."""

    __slots__ = ()
