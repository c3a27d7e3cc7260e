"""Reports which connections that hold a lock have ended, as soon as the kernel knows.

All sessions of a client are watched by one epoll descriptor, for the end of the connection and
nothing else, so answers to statements do not wake the watcher. Where the system has no epoll, the
end of a connection is noticed by the next request on it.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends import wire
from leaselock._backends.readiness import POLLIN, new_poller
from leaselock._backends.wire import READ, TaskWire, ThreadWire
from leaselock._core.contract.effects import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.session_connection import SessionConnection

# EPOLLIN and EPOLLRDHUP; the module has these names only where epoll exists.
READABLE, ENDED = 0x001, 0x2000


class AwaitDisconnect(NamedTuple("AwaitDisconnect", []), Request["list[SessionConnection]"]):
    """Wait for sessions to end, or for `wake`."""

    __slots__ = ()


class PipeOnly:
    """Replaces epoll where the system has none: it watches nothing but what wakes it."""

    def __init__(self, woken: int) -> None:
        self.woken = woken
        self.waiting = new_poller()
        self.waiting.register(woken, POLLIN)

    def register(self, descriptor: int, events: int) -> None:
        """Other descriptors are not watched."""

    def unregister(self, descriptor: int) -> None:
        """Other descriptors are not watched."""

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        """Wait until it is woken."""
        return self.waiting.poll(seconds * 1000)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self.woken

    def close(self) -> None:
        """The watcher closes what wakes it."""


class DisconnectWatcher(wire.Protocol):
    """Watches the sessions of one client; a wire waits for it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.sessions: dict[int, SessionConnection] = {}
        # No pipe for that: on Windows only sockets can be waited for.
        self.reader, self.writer = socket.socketpair()
        self.reader.setblocking(False)
        self.writer.setblocking(False)
        self.read = self.reader.fileno()
        self.epoll: Any = select.epoll() if hasattr(select, "epoll") else PipeOnly(self.read)
        self.epoll.register(self.read, READABLE)

    def add(self, session: SessionConnection) -> None:
        """Watch a session."""
        descriptor = session.connection.fileno()
        self.sessions[descriptor] = session
        self.epoll.register(descriptor, ENDED)

    def remove(self, session: SessionConnection) -> None:
        """Stop watching a session; its connection is about to be closed."""
        for descriptor, other in list(self.sessions.items()):
            if other is session:
                del self.sessions[descriptor]
                self._unregister(descriptor)

    def _unregister(self, descriptor: int) -> None:
        # The kernel has removed a descriptor that the client library has closed.
        with contextlib.suppress(OSError):
            self.epoll.unregister(descriptor)

    def wake(self) -> None:
        """End a wait."""
        with contextlib.suppress(BlockingIOError):  # it is full of earlier wake-ups
            self.writer.send(b".")

    def steps(self, request: AwaitDisconnect, until: float) -> Any:
        """Wait for events."""
        try:
            while not (events := self.epoll.poll(0)):
                yield READ
        except TimeoutError:
            return []
        ended = []
        for descriptor, _ in events:
            if descriptor == self.read:
                self.reader.recv(4096)
            elif (session := self.sessions.pop(descriptor, None)) is not None:
                self._unregister(descriptor)
                ended.append(session)
        return ended

    def fileno(self) -> int:
        """The descriptor to wait for."""
        number: int = self.epoll.fileno()
        return number

    def shutdown(self) -> None:
        """End a wait."""
        self.wake()

    def release(self) -> None:
        """Close the descriptors."""
        self.epoll.close()
        self.reader.close()
        self.writer.close()

    def after_fork(self) -> None:
        """Close the descriptors."""
        self.release()


class ThreadWatcher(ThreadWire, DisconnectWatcher):
    """A watcher for threads."""


class TaskWatcher(TaskWire, DisconnectWatcher):
    """A watcher for asyncio."""
