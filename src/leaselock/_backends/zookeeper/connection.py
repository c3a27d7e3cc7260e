"""A ZooKeeper session over kazoo: one kazoo client, its thread, and no retries.

kazoo keeps the connection and the session alive and reconnects; this library decides what is sent
and when. Invariant: nothing is given to kazoo while it is not connected, because kazoo would keep
the request and send it at any later time. `SessionBackend.batch` sees to that; `refusal` refuses
what is asked of a session that has ended.

kazoo is used through its public interface, with two exceptions that have no public counterpart:
the negotiated session timeout (`_observe_handshake`), and settings of a client that the user made
(module `client_settings`). docs/decisions/0012 has the figures.

kazoo sends a ping only when it has sent nothing else for a while. So it would never give up a
connection whose replies vanish while this client keeps asking; `Connection.poll_for_reply` does.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import os
import socket
import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol

from leaselock._backends import library
from leaselock._backends.readiness import POLLIN, POLLOUT, new_poller
from leaselock._backends.zookeeper.layout_marker import LayoutMarker
from leaselock._backends.zookeeper.requests import (
    CHILDREN,
    DELETED,
    SESSION_ENDED,
    TAKEN,
    WRITES,
    AwaitEvents,
    Batch,
    BatchResult,
    Children,
    CloseSession,
    Connect,
    Create,
    CreateSequential,
    Delete,
    EnsurePath,
    GetChildren,
    Mailbox,
    Node,
    Operation,
    QuorumBarrier,
    Read,
    ServerStatus,
    SetData,
    Transaction,
)
from leaselock._core.contract.backend import WAKE_ALL
from leaselock._core.contract.effects import FOREVER
from leaselock._core.contract.lifecycle import Lifecycle
from leaselock.errors import NotApplied, OutcomeUnknown, StoreUnreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from leaselock._backends.zookeeper.url import Target

EXTRA = "zookeeper"
CLOSE_TIMEOUT = 2.0
# A server that owes a reply may be silent for this part of the session, as for kazoo's pings.
SILENCES_PER_SESSION = 3
# Seconds. A wait that ends too late by FROZEN shows that this process was frozen. The reply may
# have arrived then: kazoo's thread has SECOND_LOOK to find it.
FROZEN = 0.25
SECOND_LOOK = 0.5
RECONNECT = {"max_tries": -1, "delay": 0.02, "backoff": 2, "max_jitter": 0.4, "max_delay": 1.0}
NO_RETRIES = {"max_tries": 0}
ENDED = ("CLOSED", "EXPIRED_SESSION")
# The version of a node after 2**31 - 1 writes, which none has. The servers agree even on a write
# that is refused for its version. The reply to `sync` comes from the leader alone, which may be
# deposed already.
VERSION_OF_NO_NODE = 2**31 - 1
# Names of kazoo's exceptions after which a request may or may not have been executed.
UNKNOWN_OUTCOME = (
    *("ConnectionLoss", "SessionExpiredError", "ConnectionClosedError", "OperationTimeoutError"),
    "ConnectionError",
)
# Names of exceptions for missing rights.
DENIED = ("NoAuthError", "AuthFailedError", "PermissionError")
# The reply to an operation that fails with one of these.
EXPECTED: dict[str, Any] = {"NoNodeError": None, "NodeExistsError": TAKEN, "NotEmptyError": False}
# Failures of the conditional write of a QuorumBarrier that prove agreement all the same, also for
# a user who may not write.
QUORUM_ERRORS = ("BadVersionError", "NoNodeError", "NoAuthError")
# Why a transaction may not be done; any other failure of one of its steps is an error. The steps
# before the one that failed report the first of these, those after it the last.
NOT_DONE = (
    *("RolledBackError", "NoNodeError", "NodeExistsError", "BadVersionError"),
    "RuntimeInconsistency",
)
LOG = logging.getLogger("leaselock.zookeeper")
LOG.addHandler(logging.NullHandler())


SelectResult = tuple[list[Any], list[Any], list[Any]]


def poll(
    readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
) -> SelectResult:
    """select.select() for any number of descriptors.

    kazoo calls it five times per request. Its own version creates an epoll object each time, which
    was half of the client's CPU time.
    """
    poller = new_poller()
    try:
        for one in {*readers, *writers}:
            events = POLLIN * (one in readers) | POLLOUT * (one in writers)
            poller.register(one, events)
    except ValueError as error:
        raise OSError(errno.EBADF, str(error)) from error  # closed by another thread
    ready = dict(poller.poll(None if timeout is None else math.ceil(timeout * 1000)))
    readable = [one for one in readers if ready.get(one.fileno(), 0) & ~POLLOUT]
    return readable, [one for one in writers if ready.get(one.fileno(), 0) & ~POLLIN], []


def _handler(connection: Connection) -> Any:
    base: Any = library("kazoo.handlers.threading", EXTRA).SequentialThreadingHandler

    class Handler(base):  # type: ignore[misc]
        """Runs callbacks in kazoo's connection thread, and knows kazoo's sockets.

        Our callbacks do not block, so the two worker threads of the base class are not needed.
        """

        # Makes kazoo call the callbacks of a result at once instead of through a worker thread.
        running = False

        def __init__(self) -> None:
            super().__init__()
            self.pair: tuple[Any, ...] = ()
            self.socket_in_use: Any = None

        def select(
            self, readers: Any, writers: Any, errors: Any, timeout: float | None = None
        ) -> SelectResult:
            if not connection.unanswered or self.socket_in_use not in readers:
                return poll(readers, writers, errors, timeout)
            return connection.poll_for_reply(self, readers, timeout)

        def start(self) -> None:
            """There are no workers."""

        def stop(self) -> None:
            """There are no workers."""

        def async_result(self) -> Any:
            return Result()

        def dispatch_callback(self, callback: Any) -> None:
            callback.func(*callback.args)

        def create_socket_pair(self) -> Any:
            self.pair = super().create_socket_pair()
            return self.pair

        def create_connection(self, *args: Any, **kwargs: Any) -> Any:
            with connection.keeping_failure():
                self.socket_in_use = super().create_connection(*args, **kwargs)
            return self.socket_in_use

        def sockets(self) -> list[Any]:
            """All sockets that kazoo has created and may still use."""
            return [one for one in (self.socket_in_use, *self.pair) if one is not None]

        def shut_down(self) -> None:
            """End the connection, so that kazoo stops waiting for a reply."""
            if self.socket_in_use is not None:
                with contextlib.suppress(OSError):
                    self.socket_in_use.shutdown(socket.SHUT_RDWR)

    return Handler()


class Result:
    """The part of kazoo's IAsyncResult that its asynchronous requests use.

    kazoo's own class has a condition variable, which nothing here waits for; an uncontended pair
    costs 16 % more CPU time with it. Without a lock, a callback may be called twice.
    """

    __slots__ = ("_callbacks", "_done", "exception", "value")

    def __init__(self) -> None:
        self.value: Any = None
        self.exception: Any = None
        self._done = False
        self._callbacks: list[Any] = []

    def set(self, value: Any = None) -> None:
        """Store the value."""
        self.value = value
        self._finish()

    def set_exception(self, exception: Any) -> None:
        """Store the error."""
        self.exception = exception
        self._finish()

    def _finish(self) -> None:
        self._done = True
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self)

    def rawlink(self, callback: Any) -> None:
        """Call *callback* with this object when it has a value or an error."""
        self._callbacks.append(callback)
        if self._done:
            self._finish()

    def get(self) -> Any:
        """The value; or raise the error."""
        if self.exception is not None:
            raise self.exception
        return self.value


# --- one request in progress ------------------------------------------------------------------


class Pending(Protocol):
    """A request in progress, whose caller waits to be notified."""

    def cancel(self) -> None:
        """The caller does not wait any more."""
        ...

    def result(self) -> object:
        """The reply; or raise why there is none."""
        ...


class PendingConnect:
    """A wait for a connection."""

    def __init__(self, connection: Connection, notify: Callable[[], None]) -> None:
        self.connection = connection
        self.notify = notify
        connection.connecting.add(notify)
        connection.start()
        connection.check_layout()

    def cancel(self) -> None:
        """The caller does not wait any more."""
        self.connection.connecting.discard(self.notify)

    def result(self) -> None:
        """Raise unless connected to a store with a layout that this program may use."""
        connection = self.connection
        if connection.marker.problem is not None:
            raise NotApplied(connection.marker.problem, "misconfigured")
        if not (connection.online and connection.marker.admits(connection.session)):
            raise connection.unreachable() from connection.failure


class PendingEvents:
    """A wait for events."""

    def __init__(
        self, connection: Connection, mailbox: Mailbox, notify: Callable[[], None]
    ) -> None:
        self.connection = connection
        self.mailbox = mailbox
        mailbox.notify = notify
        # What was put before that is not waited for.
        if mailbox.events or connection.closing:
            notify()

    def cancel(self) -> None:
        """The caller does not wait any more."""
        self.mailbox.notify = None

    def result(self) -> tuple[str, ...]:
        """All events; none after the deadline."""
        if self.connection.closing:
            raise NotApplied("the client was closed")
        return self.mailbox.take()


class PendingBatch:
    """A batch whose replies are awaited. kazoo's thread stores them here."""

    def __init__(self, connection: Connection, batch: Batch, notify: Callable[[], None]) -> None:
        self.connection = connection
        self.operations = batch.operations
        self.notify = notify
        self.replies: list[object] = [None] * len(batch.operations)
        self.error: BaseException | None = None
        self.written = False
        # Numbers of requests without a reply. kazoo may report one failure twice.
        self.open: set[int] = set()
        if not connection.unanswered:
            connection.last_reply = connection.now()
        connection.unanswered.add(self)
        self._send(batch)

    def _send(self, batch: Batch) -> None:
        # An EnsurePath is one request for each part of its path, any other operation is one.
        indexes = [
            index
            for index, operation in enumerate(batch.operations)
            for _ in range(operation.path.count("/") if isinstance(operation, EnsurePath) else 1)
        ]
        self.open.update(range(len(indexes)))
        client = self.connection.client  # another thread may close the connection meanwhile
        refused = self.connection.refusal(client, batch.session)
        if refused is not None:
            for number, index in enumerate(indexes):
                self._failed(number, index, refused)
            return
        results = (
            one for operation in batch.operations for one in self.connection.send(client, operation)
        )
        for number, (index, result) in enumerate(zip(indexes, results, strict=True)):
            last = indexes[number + 1 : number + 2] != [index]
            result.rawlink(self._receiver(number, index, last))

    def _receiver(self, number: int, index: int, last: bool) -> Callable[[Any], None]:
        def receive(result: Any) -> None:
            error, operation = result.exception, self.operations[index]
            if error is None and isinstance(operation, Transaction):
                error = next((one for one in result.value if _is_refusal(one)), None)
            if error is None:
                self._finish(number, index, _reply(operation, result.value))
            else:
                self._failed(number, index, error, last=last)

        return receive

    def _failed(self, number: int, index: int, error: Any, *, last: bool = True) -> None:
        operation, kind = self.operations[index], type(error).__name__
        if isinstance(operation, QuorumBarrier) and kind in QUORUM_ERRORS:
            self._finish(number, index, None)
        elif isinstance(operation, EnsurePath) and kind != "NodeExistsError":
            # A parent that this user may not create usually exists; the last part decides.
            harmless = not last and kind not in UNKNOWN_OUTCOME
            self._finish(number, index, TAKEN, None if harmless else error)
        elif kind not in EXPECTED:
            self._finish(number, index, None, error)
        else:
            failed = False if isinstance(operation, Delete) else EXPECTED[kind]
            self._finish(number, index, failed)

    def _finish(self, number: int, index: int, reply: object, error: Any = None) -> None:
        if number not in self.open:
            return
        self.open.discard(number)
        connection = self.connection
        connection.last_reply = connection.now()
        if error is None:
            self.replies[index] = reply
            self.written |= isinstance(self.operations[index], WRITES) and reply not in (
                False,
                TAKEN,
            )
        elif self.error is None or type(error).__name__ in UNKNOWN_OUTCOME:
            self.error = error
        if not self.open:
            connection.unanswered.discard(self)
            self.notify()

    def cancel(self) -> None:
        """The caller does not wait any more. The reply still shows that the connection lives."""

    def result(self) -> BatchResult:
        """The replies. NotApplied only if none of the writes was executed."""
        connection = self.connection
        if self.open:
            raise OutcomeUnknown(f"no answer of {connection.target.shown} in time")
        error = self.error
        if error is None:
            return BatchResult(connection.session, connection.timeout, tuple(self.replies))
        message = f"ZooKeeper: {type(error).__name__} {error}".rstrip()
        unknown = type(error).__name__ in UNKNOWN_OUTCOME or self.written
        if unknown:
            raise OutcomeUnknown(message) from error
        denied = type(error).__name__ in DENIED
        raise NotApplied(message, "denied" if denied else "refused") from error


def _is_refusal(answer: object) -> bool:
    """Whether a step of a transaction failed for another reason than the state of the nodes."""
    return isinstance(answer, Exception) and type(answer).__name__ not in NOT_DONE


def _reply(operation: Operation, value: Any) -> object:
    if isinstance(operation, (CreateSequential, Create)):
        path, stat = value
        return _node(path, operation.data, stat)
    if isinstance(operation, Read):
        data, stat = value
        return _node(operation.path, data, stat)
    if isinstance(operation, GetChildren):
        names, stat = value
        return Children(tuple(names), stat.mzxid)
    if isinstance(operation, SetData):
        return _node(operation.path, operation.data, value)
    if isinstance(operation, Transaction):
        return not any(isinstance(one, Exception) for one in value)
    return True if isinstance(operation, Delete) else None


def _node(path: str, data: bytes, stat: Any) -> Node:
    created = stat.ctime / 1000.0
    return Node(path, stat.czxid, stat.ephemeralOwner, created, data, stat.mzxid, stat.version)


def _transaction(client: Any, operation: Transaction) -> Any:
    """The transaction as kazoo has it, yet to be sent."""
    transaction = client.transaction()
    for step in operation.steps:
        if isinstance(step, Create):
            transaction.create(step.path, step.data, ephemeral=True)
        elif isinstance(step, Delete):
            transaction.delete(step.path)
        elif isinstance(step, SetData):
            transaction.set_data(step.path, step.data)
        else:
            transaction.check(step.path, step.version)
    return transaction


# --- the connection ---------------------------------------------------------------------------


class Connection(Lifecycle):
    """A kazoo client that is created by the first request, and its session.

    A subclass adds `call`, which waits as its driver does. The other methods may be called from
    any thread.
    """

    def __init__(self, target: Target, now: Callable[[], float]) -> None:
        self.target = target
        self.now = now
        library("kazoo.client", EXTRA)
        self.mutex = threading.Lock()
        # kazoo's thread writes session, timeout and failure; its callers write client, process,
        # closing, mailboxes and connecting, and, when they end the session, session and failure;
        # both change the rest.
        self.client: Any = None
        self.process = 0
        self.session = 0
        self.timeout = target.timeout
        self.closing = False
        self.mailboxes: list[Mailbox] = []
        self.connecting: set[Callable[[], None]] = set()
        # Batches without a reply; and when the last reply came, or the first of them was sent.
        self.unanswered: set[PendingBatch] = set()
        self.last_reply = 0.0
        # Why kazoo could not connect, the last time that it tried. It reports that in its log only.
        self.failure: Exception | None = None
        self.marker = LayoutMarker(target.shown, target.root, self._notify_connecting)

    def begin(self, request: object, notify: Callable[[], None]) -> Pending:
        """Start a request. *notify* is called in any thread, once or more often, when its result
        is there.
        """
        if isinstance(request, Batch):
            self.start()
            return PendingBatch(self, request, notify)
        if isinstance(request, AwaitEvents):
            return PendingEvents(self, request.mailbox, notify)
        assert isinstance(request, Connect), request
        return PendingConnect(self, notify)

    def run_blocking(self, request: object) -> object:
        """Carry out a request for which kazoo blocks."""
        if isinstance(request, ServerStatus):
            return self.client.command(b"srvr")
        self.end_session()
        return None

    # --- kazoo's client -------------------------------------------------------------------------

    @property
    def connected(self) -> bool:
        """Whether a request can be sent now: in this session, the layout has been checked."""
        return self.online and self.marker.checked == self.session

    @property
    def online(self) -> bool:
        """Whether there is a session with a server."""
        client = self.client
        return client is not None and client.connected

    def check_layout(self) -> None:
        """Have the waits for a connection end, once the layout marker has been checked."""
        client = self.client
        if self.connected:
            self._notify_connecting()
        elif client is not None and client.connected:
            self.marker.begin(client, self.session)

    def _notify_connecting(self) -> None:
        for notify in list(self.connecting):
            notify()

    def poll_for_reply(
        self, handler: Any, readers: Sequence[Any], timeout: float | None
    ) -> SelectResult:
        """Wait as select.select(), while the server owes a reply. End the connection if it has been
        silent for a third of the session, unless there is something to read: after a freeze of
        this process the reply may have arrived.
        """
        now, limit = self.now(), self.last_reply + self.timeout / SILENCES_PER_SESSION
        end = FOREVER if timeout is None else now + timeout
        ready = poll(readers, (), (), max(0.0, min(end, limit) - now))
        if handler.socket_in_use in ready[0] or self.now() < limit:
            return ready
        if self.online:
            LOG.warning("a reply is overdue: the connection is given up")
            handler.shut_down()
        return poll(readers, (), (), None if timeout is None else max(0.0, end - self.now()))

    def start(self) -> None:
        """Create the kazoo client, unless there is a usable one."""
        with self.mutex:
            if self.client is None or self._has_failed(self.client):
                self.client = self._new_client()
                self.process = os.getpid()
                self.client.start_async()

    def _has_failed(self, client: Any) -> bool:
        """Whether kazoo does not reconnect any more, as after refused credentials."""
        return bool(client.connection_ended and client.client_state in ("CLOSED", "AUTH_FAILED"))

    def _new_client(self) -> Any:
        security = library("kazoo.security", EXTRA)
        target = self.target
        client = library("kazoo.client", EXTRA).KazooClient(
            target.hosts,
            timeout=target.timeout,
            handler=_handler(self),
            default_acl=security.CREATOR_ALL_ACL if target.creator else security.OPEN_ACL_UNSAFE,
            connection_retry=RECONNECT,
            command_retry=NO_RETRIES,
            logger=LOG,
            **target.options,
        )
        client.connection_ended = False
        self.unanswered = set()
        self._observe_handshake(client)
        client.add_listener(lambda state: self._state_changed(client, state))
        return client

    @contextlib.contextmanager
    def keeping_failure(self) -> Iterator[None]:
        """Keep the error with which a part of connecting fails."""
        try:
            yield
        except Exception as error:
            self.failure = error
            raise

    def _observe_handshake(self, client: Any) -> None:
        """Record the session timeout that the server grants (hazard B14). kazoo does not publish
        it, so this wraps the private method that receives it.
        """
        kind = library("kazoo.protocol.serialization", EXTRA).Connect
        connection = client._connection
        invoke = connection._invoke

        def observed(timeout: float, request: Any, xid: Any = None) -> Any:
            with self.keeping_failure():
                reply = invoke(timeout, request, xid)
            if client is self.client and isinstance(request, kind) and reply[0].time_out > 0:
                self.session, self.timeout = reply[0].session_id, reply[0].time_out / 1000.0
                self.failure = None
            return reply

        connection._invoke = observed

    def _state_changed(self, client: Any, state: str) -> None:
        """Called in kazoo's thread: connected again, disconnected, or the session has ended."""
        if client is not self.client:
            return  # of a client that was closed
        if state == "LOST":
            client.connection_ended = client.client_state != "EXPIRED_SESSION"
            ended, self.session = self.session, 0
            self._publish(f"{SESSION_ENDED}{ended}")
        elif state != "SUSPENDED":
            self._publish(WAKE_ALL)
        self.check_layout()

    def _node_changed(self, event: Any) -> None:
        # An event without a path is about the connection, which `_state_changed` handles.
        if event.type == "CHILD":
            self._publish(event.path + CHILDREN)
        elif event.path:
            self._publish((DELETED if event.type == "DELETED" else "") + event.path)

    def _publish(self, event: str) -> None:
        for mailbox in list(self.mailboxes):
            mailbox.put(event)

    def unreachable(self) -> Exception:
        """The error when no server was reached. Within a session, asking again is worthwhile."""
        message = f"no server of {self.target.shown} could be reached in time"
        return OutcomeUnknown(message) if self.session else StoreUnreachable(message)

    def send(self, client: Any, operation: Operation) -> Iterator[Any]:
        """Give an operation to kazoo; yield its result, or one for each part of a path."""
        path = operation.path
        if isinstance(operation, (CreateSequential, Create)):
            yield client.create_async(
                path,
                operation.data,
                ephemeral=True,
                sequence=isinstance(operation, CreateSequential),
                include_data=True,
            )
        elif isinstance(operation, GetChildren):
            watch = self._node_changed if operation.watch else None
            yield client.get_children_async(path, watch, include_data=True)
        elif isinstance(operation, Read):
            yield client.get_async(path, self._node_changed if operation.watch else None)
        elif isinstance(operation, Delete):
            yield client.delete_async(path)
        elif isinstance(operation, SetData):
            yield client.set_async(path, operation.data)
        elif isinstance(operation, Transaction):
            yield _transaction(client, operation).commit_async()
        elif isinstance(operation, QuorumBarrier):
            yield client.set_async(path, b"", VERSION_OF_NO_NODE)
        else:
            parts = path.split("/")
            for end in range(2, len(parts) + 1):
                yield client.create_async("/".join(parts[:end]), b"")

    def looks_again(self, request: object, until: float) -> bool:
        """Whether to wait on for the reply, which may have arrived while this process was frozen:
        a wait until *until* has ended much later.
        """
        return self.now() > until + FROZEN and not isinstance(request, AwaitEvents)

    def refusal(self, client: Any, session: int) -> Exception | None:
        """Why nothing may be sent, if so."""
        state = "CLOSED" if client is None else client.client_state
        if state == "AUTH_FAILED":
            return PermissionError("the credentials were refused")
        ended = state in ENDED or session not in (0, self.session)
        return ConnectionError("the session is over") if ended else None

    # --- lifecycle ------------------------------------------------------------------------------

    def subscribe(self, mailbox: Mailbox) -> None:
        """Deliver every event to it from now on."""
        if mailbox not in self.mailboxes:
            self.mailboxes.append(mailbox)

    def unsubscribe(self, mailbox: Mailbox) -> None:
        """Stop delivering events to it, and forget those that it has."""
        if mailbox in self.mailboxes:
            self.mailboxes.remove(mailbox)
        mailbox.take()

    def wake(self) -> None:
        """End every wait for events, and those to come until `close`."""
        self.closing = True
        for mailbox in self.mailboxes:
            mailbox.wake()

    def close(self) -> None:
        """End the session. A backend has usually done that already (`CloseSession`)."""
        self.end_session()
        self.closing = False

    def end_session(self) -> None:
        """End the session, and wait for that within limits."""
        with self.mutex:
            client, self.client, self.session = self.client, None, 0
            self.failure = None
        if client is None:
            return
        closer = threading.Thread(target=_stop, args=(client,), name="leaselock-close", daemon=True)
        try:
            closer.start()
        except RuntimeError:
            # The interpreter ends: from Python 3.12 on, it starts no more threads then.
            _stop(client)
            return
        closer.join(CLOSE_TIMEOUT)
        if closer.is_alive():
            # The server does not answer; it ends the session by its timeout. Should kazoo still be
            # connecting, both threads end when that has failed.
            client.handler.shut_down()
            closer.join(CLOSE_TIMEOUT)

    def after_fork(self) -> None:
        """Let go of the client: in a forked child, whose parent uses the session, without a
        message; after the end of an event loop by closing the session.
        """
        self.mailboxes = []
        self.connecting = set()
        self.unanswered = set()
        if self.client is not None and self.process == os.getpid():
            self.close()
            return
        self.mutex = threading.Lock()
        client, self.client, self.session = self.client, None, 0
        self.closing, self.failure = False, None
        if client is not None:
            # Only this process's copies of the descriptors are closed. kazoo's thread is not here.
            for one in client.handler.sockets():
                one.close()


def _stop(client: Any) -> None:
    client.stop()
    client.close()


class BlockingConnection(Connection):
    """A connection for threads."""

    def call(self, request: object, until: float) -> object:
        """Send the request, and wait for its reply."""
        if isinstance(request, (CloseSession, ServerStatus)):
            return self.run_blocking(request)
        notified: SimpleQueue[None] = SimpleQueue()
        pending = self.begin(request, lambda: notified.put(None))
        try:
            timeout = None if until == FOREVER else max(0.0, until - self.now())
            if not _arrives(notified, timeout) and self.looks_again(request, until):
                _arrives(notified, SECOND_LOOK)
        finally:
            pending.cancel()
        return pending.result()  # it says what is missing


def _arrives(notified: SimpleQueue[None], timeout: float | None) -> bool:
    try:
        notified.get(timeout=timeout)
    except Empty:
        return False
    return True
