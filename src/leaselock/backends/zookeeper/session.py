"""The kazoo client of one leaselock client: one session at a time, one thread, no retries.

Law: kazoo keeps the connection and the session alive, and reconnects; what is asked, when and
how often is ours to say. Nothing is handed to kazoo while it is not connected, for it would keep
the request and send it whenever it can.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import select
import socket
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from leaselock.backends import library
from leaselock.backends.zookeeper.flights import InTheAir, Wire
from leaselock.backends.zookeeper.requests import GONE
from leaselock.core.backend import WAKE_ALL
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leaselock.backends.zookeeper.requests import Flight
    from leaselock.backends.zookeeper.url import Target

EXTRA = "zookeeper"
CLOSE_PATIENCE = 2.0
RECONNECT = {"max_tries": -1, "delay": 0.02, "backoff": 2, "max_jitter": 0.4, "max_delay": 1.0}
NEVER = {"max_tries": 0}
ENDED = ("CLOSED", "EXPIRED_SESSION")
LOG = logging.getLogger("leaselock.zookeeper")
LOG.addHandler(logging.NullHandler())


def kazoo() -> Any:
    """What is needed of the library."""
    words = library("kazoo.protocol.serialization", EXTRA)
    return SimpleNamespace(
        client=library("kazoo.client", EXTRA),
        security=library("kazoo.security", EXTRA),
        states=library("kazoo.protocol.states", EXTRA),
        handler=_handler(library("kazoo.handlers.threading", EXTRA)),
        words=words,
        Connect=words.Connect,
    )


def polled(
    readers: Sequence[Any], writers: Sequence[Any], _: Sequence[Any], timeout: float | None = None
) -> tuple[list[Any], list[Any], list[Any]]:
    """As select.select, for any descriptor.

    kazoo asks five times for each request, and makes a new epoll for each time: half of all that
    its client does.
    """
    poller = select.poll()
    try:
        for one in {*readers, *writers}:
            events = select.POLLIN * (one in readers) | select.POLLOUT * (one in writers)
            poller.register(one, events)
    except ValueError as error:
        raise OSError(errno.EBADF, str(error)) from error  # it was closed meanwhile
    ready = dict(poller.poll(None if timeout is None else math.ceil(timeout * 1000)))
    found = [one for one in readers if ready.get(one.fileno(), 0) & ~select.POLLOUT]
    return found, [one for one in writers if ready.get(one.fileno(), 0) & ~select.POLLIN], []


def _handler(threads: Any) -> Any:
    class Direct(threads.SequentialThreadingHandler):  # type: ignore[misc]
        """Runs what a watch calls where it is noticed: ours only leave a word and return."""

        select = staticmethod(polled)

        def start(self) -> None:
            self._running = True

        def stop(self) -> None:
            self._running = False

        def dispatch_callback(self, callback: Any) -> None:
            callback.func(*callback.args)

    return Direct


def hang_up(sock: Any) -> None:
    """End a connection, if there is one, so that whoever waits for its answer is woken."""
    if sock is not None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)


def let_go(*sockets: Any) -> None:
    """Close them, those that there are."""
    for sock in sockets:
        if sock is not None:
            sock.close()


class Session:
    """A client of kazoo's, made by the first question; and what the servers said of its session."""

    def __init__(self, target: Target, heard: Callable[[str], None]) -> None:
        self.target = target
        self.heard = heard
        self.kazoo = kazoo()
        self.mutex = threading.Lock()
        self.client: Any = None
        self.wire: Wire | None = None
        self.number = 0
        self.timeout = target.timeout
        self.listeners: list[Callable[[], None]] = []

    def start(self) -> Any:
        """The client, begun if there is none; it is connected when its event is set."""
        with self.mutex:
            if self.client is None or self._dead(self.client):
                self.client = self._made()
                self.client.live = self.client.start_async()
            return self.client

    def _dead(self, client: Any) -> bool:
        """Whether kazoo has given up for good, as it does when credentials are refused."""
        return client.connection_ended and client.client_state in ("CLOSED", "AUTH_FAILED")

    def _made(self) -> Any:
        kazoo, target = self.kazoo, self.target
        security = kazoo.security
        acl = security.CREATOR_ALL_ACL if target.creator else security.OPEN_ACL_UNSAFE
        self.wire = Wire(kazoo.words, acl, self._watched)
        client = kazoo.client.KazooClient(
            target.hosts,
            timeout=target.timeout,
            handler=kazoo.handler(),
            connection_retry=RECONNECT,
            command_retry=NEVER,
            logger=LOG,
            **target.options,
        )
        client.connection_ended = False
        self._overhear(client)
        client.add_listener(lambda state: self._state(client, state))
        return client

    def _overhear(self, client: Any) -> None:
        """Note what was negotiated (hazard B14): kazoo itself keeps it from everybody."""
        connection = client._connection
        invoke = connection._invoke

        def overheard(timeout: float, request: Any, xid: Any = None) -> Any:
            answer = invoke(timeout, request, xid)
            ours = client is self.client and isinstance(request, self.kazoo.Connect)
            if ours and answer[0].time_out > 0:
                self.number, self.timeout = answer[0].session_id, answer[0].time_out / 1000.0
            return answer

        connection._invoke = overheard

    def _state(self, client: Any, state: str) -> None:
        """In kazoo's thread: connected again, or the session is over; all look again."""
        if client is not self.client:
            return  # it was closed
        if state == self.kazoo.states.KazooState.LOST:
            client.connection_ended = client.client_state != "EXPIRED_SESSION"
            self.number = 0
        if state != self.kazoo.states.KazooState.SUSPENDED:
            self.heard(WAKE_ALL)
        for listener in list(self.listeners):
            listener()

    def _watched(self, event: Any) -> None:
        # Without a path it is about the connection, of which `_state` tells.
        if event.path:
            self.heard((GONE if event.type == "DELETED" else "") + event.path)

    def unreachable(self) -> Exception:
        """Why nothing could be sent: with a session it is worth asking again."""
        words = f"no server of {self.target.shown} could be reached in time"
        return OutcomeUnknown(words) if self.number else NotApplied(words)

    def launch(self, client: Any, flight: Flight, done: Callable[[InTheAir], None]) -> None:
        """Send a flight; *done* is called when it has landed, in whichever thread.

        As kazoo's `_call` does it, but its thread is woken once for all of it, which is a fifth
        of the time that an uncontended lock takes.
        """
        assert self.wire is not None
        requests = InTheAir(flight.operations, done).slots(self.wire)
        error = self._over(client, flight.session)
        if error is None:
            client._queue.extend(requests)
            error = self._nudge(client, len(requests))
        if error is not None:
            for _, slot in requests:
                slot.set_exception(error)

    def _over(self, client: Any, session: int) -> Exception | None:
        state = client.client_state
        if state == "AUTH_FAILED":
            return PermissionError("the credentials were refused")
        over = state in ENDED or session not in (0, self.number)
        return ConnectionError("the session is over") if over else None

    def _nudge(self, client: Any, times: int) -> Exception | None:
        """Wake kazoo's thread, which takes one byte for each request."""
        waker = client._connection._write_sock
        try:
            waker.send(b"\0" * times)
        except (OSError, AttributeError):
            return ConnectionError("the connection was closed")
        return None

    def close(self) -> None:
        """End the session, and with it all that it holds."""
        with self.mutex:
            client, self.client, self.number = self.client, None, 0
        if client is None:
            return
        client._stopped.set()
        client._queue.append((self.kazoo.words.CloseInstance, None))
        connection = client._connection
        self._nudge(client, 1)
        if not connection.connection_stopped.wait(CLOSE_PATIENCE):
            # A server that keeps silent ends the session by itself; we end the connection.
            hang_up(connection._socket)
            self._nudge(client, 1)
            if not connection.connection_stopped.wait(CLOSE_PATIENCE):
                # There is none yet: kazoo's thread ends by itself, when that has failed.
                let_go(connection._read_sock, connection._write_sock)
                return
        client._safe_close()
        client.close()

    def after_fork(self) -> None:
        """Leave the parent's client alone: its threads are not here, its session is not ours. Only
        our copies of its descriptors are closed, which the parent does not notice.
        """
        self.mutex = threading.Lock()
        client, self.client = self.client, None
        if client is not None:
            connection = client._connection
            let_go(connection._socket, connection._read_sock, connection._write_sock)
        self.number = 0
        self.listeners = []
