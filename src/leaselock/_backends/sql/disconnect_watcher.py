"""Reports which connections that hold a lock have ended, as soon as the kernel knows.

All sessions of a client are watched by one epoll descriptor, for the end of the connection and
nothing else, so answers to statements do not wake the watcher. Where the system has no epoll, the
end of a connection is noticed by the next request on it.
"""

from __future__ import annotations

import contextlib
import os
import select
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends import wire
from leaselock._backends.readiness import POLLIN, new_poller
from leaselock._backends.wire import READ, TaskWire, ThreadWire
from leaselock._core.effects import Request

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._backends.sql.session_connection import SessionConnection

# EPOLLIN and EPOLLRDHUP; the module has these names only where epoll exists.
READABLE, ENDED = 0x001, 0x2000


class AwaitDisconnect(NamedTuple("AwaitDisconnect", []), Request["list[SessionConnection]"]):
    """Wait for sessions to end, or for `wake`."""

    __slots__ = ()


class PipeOnly:
    """Replaces epoll where the system has none: it watches nothing but the pipe."""

    def __init__(self, pipe: int) -> None:
        self.pipe = pipe
        self.waiting = new_poller()
        self.waiting.register(pipe, POLLIN)

    def register(self, descriptor: int, events: int) -> None:
        """Other descriptors are not watched."""

    def unregister(self, descriptor: int) -> None:
        """Other descriptors are not watched."""

    def poll(self, seconds: float) -> list[tuple[int, int]]:
        """Wait for the pipe."""
        return self.waiting.poll(seconds * 1000)

    def fileno(self) -> int:
        """The descriptor to wait for."""
        return self.pipe

    def close(self) -> None:
        """The pipe is closed by the watcher."""


class DisconnectWatcher(wire.Protocol):
    """Watches the sessions of one client; a wire waits for it."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.sessions: dict[int, SessionConnection] = {}
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        os.set_blocking(self.write, False)
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
        with contextlib.suppress(BlockingIOError):  # the pipe is full of earlier wake-ups
            os.write(self.write, b".")

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
                os.read(self.read, 4096)
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
        os.close(self.read)
        os.close(self.write)

    def after_fork(self) -> None:
        """Close the descriptors."""
        self.release()


class ThreadWatcher(ThreadWire, DisconnectWatcher):
    """A watcher for threads."""


class TaskWatcher(TaskWire, DisconnectWatcher):
    """A watcher for asyncio."""
