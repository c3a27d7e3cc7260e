"""What every connection to a database has in common, and the requests it carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leaselock._backends import wire
from leaselock._core.contract.effects import Request
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from leaselock._backends.sql.statements import Result
    from leaselock._backends.sql.url import Target

    Steps = Generator[Any, Any, Any]


class Connect(NamedTuple("Connect", []), Request[None]):
    """Establish the connection."""

    __slots__ = ()


class Execute(NamedTuple("Execute", [("text", Any)]), Request["list[Result]"]):
    """Execute statements that are sent in one piece; SqlError if one fails."""

    __slots__ = ()


class Send(NamedTuple("Send", [("text", Any)]), Request[None]):
    """Send statements without waiting for their results. `Receive` must follow."""

    __slots__ = ()


class Receive(NamedTuple("Receive", []), Request["list[Result]"]):
    """Wait for the results of what was sent."""

    __slots__ = ()


class AwaitNotification(NamedTuple("AwaitNotification", []), Request["list[str]"]):
    """Wait for notifications; the reply is empty when the time is up."""

    __slots__ = ()


class Tls(NamedTuple):
    """The encryption of a connection."""

    problem: str
    """What of the server's certificate is not verified, and why; empty if all is."""
    requested: bool
    """The connection would have failed without TLS."""


class Connection(Protocol):
    """One connection, as the pool, the listener and the session pool use it."""

    prepared: set[str] | None
    """Names of the statements that are prepared in the session; None if none may be."""
    number: int
    """The number of the session that the server, or a proxy in its place, gave in the handshake."""
    backend: int
    """The number of the session in the server."""
    reused: bool
    """It has been idle in the pool, so that it may have ended unnoticed."""
    complete: bool
    """The request in progress leaves neither a transaction nor a new prepared statement."""

    @property
    def usable(self) -> bool:
        """Open, outside a transaction, and without an answer still to come."""
        ...

    def fresh(self) -> bool:
        """Usable, and neither ended by the server nor with unexpected input."""
        ...

    @property
    def resumable(self) -> bool:
        """A complete request was cancelled: after `Receive` the connection is usable again."""
        ...

    def now(self) -> float:
        """The time on the clock of the deadlines."""
        ...

    def call(self, request: Any, until: float) -> Any:
        """Carry out one request; for asyncio, return an awaitable."""
        ...

    def tls(self) -> Tls | None:
        """Its encryption, if it has one."""
        ...

    def fileno(self) -> int:
        """The descriptor of its socket."""
        ...

    def cut(self) -> None:
        """End it from any thread, so that a request in progress fails."""
        ...

    def close(self) -> None:
        """End it."""
        ...

    def after_fork(self) -> None:
        """In a forked child: close its descriptors without sending anything."""
        ...


class DatabaseProtocol(wire.Protocol):
    """Common to the protocols of both databases: see `wire` for how it is run."""

    closed: bool
    resumes: bool

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        self.target = target
        self.now = now
        # That of the client library; the same while it is being established, which a thread may be
        # doing when another forks; and its socket.
        self.conn: Any = None
        self.connecting: Any = None
        self.socket: Any = None
        self.prepared: set[str] | None = None
        self.number = self.backend = 0
        self.reused = self.broken = self.reply_pending = self.sent = self.complete = False

    @property
    def resumable(self) -> bool:
        """A complete request was cancelled: after `Receive` the connection is usable again."""
        pending = self.reply_pending and self.sent and not (self.broken or self.closed)
        return pending and self.complete and self.resumes

    def steps(self, request: Any, until: float) -> Steps:
        """Carry out one request."""
        if self.broken:
            raise OutcomeUnknown(f"the connection to {self.target.shown} was lost")
        kind = type(request)
        if kind is Execute:
            return self.execute(request.text)
        if kind is Send:
            return self.send(request.text)
        if kind is Receive:
            return self.receive()
        if kind is AwaitNotification:
            return self.notifications()
        return self.connect(until)

    def execute(self, text: str) -> Steps:
        """Send and receive."""
        yield from self.send(text)
        results: list[Result] = yield from self.receive()
        return results

    def connect(self, until: float) -> Steps:
        """Establish the connection."""
        raise NotImplementedError

    def send(self, text: str) -> Steps:
        """Send statements."""
        raise NotImplementedError

    def receive(self) -> Steps:
        """Read their results."""
        raise NotImplementedError

    def notifications(self) -> Steps:
        """Wait for notifications."""
        raise NotImplementedError

    def fileno(self) -> int:
        """The descriptor to wait for."""
        number: int = self.socket.fileno()
        return number

    def shutdown(self) -> None:
        """End the connection without closing its descriptor."""
        if self.socket is not None:
            wire.shut_down(self.socket)

    def lost(self, error: Exception) -> OutcomeUnknown:
        """The error for a connection that has failed."""
        self.broken = True
        return OutcomeUnknown(f"{self.target.shown}: {one_line(error)}")

    def silent(self) -> OutcomeUnknown:
        """The error for an answer that did not come in time."""
        self.broken = True
        return OutcomeUnknown(f"{self.target.shown} did not answer in time")


def one_line(message: BaseException | bytes | str) -> str:
    """An error, or a message of the server, in one line."""
    if isinstance(message, bytes):
        message = message.decode("utf-8", "replace")
    if isinstance(message, str):
        return " ".join(message.split())
    return one_line(str(message.args[-1]) if message.args else "") or type(message).__name__
