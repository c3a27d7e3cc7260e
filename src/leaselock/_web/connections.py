"""The connections of the HTTP server: bounded in number, and in the time for which each may wait.

Otherwise any machine that reaches the port could use up all descriptors of the process, by
connections that send half a request, or that do not read the response.
"""

from __future__ import annotations

import socket
import struct
import sys
from typing import TYPE_CHECKING, cast

from uvicorn.protocols.http.h11_impl import H11Protocol

from leaselock._web.sparse_log import SparseLog

if TYPE_CHECKING:
    import asyncio

    from uvicorn.protocols.http.h11_impl import RequestResponseCycle

MOST_CONNECTIONS = 300
LEAST_CONNECTIONS = 8
# The kernel's queue of connections that were not accepted yet. The event loop accepts this many in
# a row, and again for up to three rounds before the first of them can be closed.
BACKLOG = 16
# Descriptors that are not for accepted connections: those of the store, the interpreter and files,
# and those of connections that are about to be closed.
RESERVED_DESCRIPTORS = 24 + 4 * BACKLOG
# Seconds within which a request must arrive, from the connection or the response before.
REQUEST_TIMEOUT = 10.0
# Seconds within which a client must read some of a response.
WRITE_TIMEOUT = 30.0

crowded = SparseLog()


def most_connections() -> int:
    """How many connections may be open: fewer than the process may have descriptors."""
    limit = descriptors()
    if limit is None:
        return MOST_CONNECTIONS
    return max(LEAST_CONNECTIONS, min(MOST_CONNECTIONS, limit - RESERVED_DESCRIPTORS))


def descriptors() -> int | None:
    """How many descriptors the process may have; None if that is not limited."""
    if sys.platform == "win32":
        return None
    else:  # noqa: RET505 # otherwise mypy looks for the module on Windows, too
        import resource

        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        return None if limit == resource.RLIM_INFINITY else limit


class Connection(H11Protocol):
    """One connection. If there are too many, the one that has waited longest for a request ends,
    so that a complete request is answered although others send none.
    """

    _since = 0.0
    _request_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request of it is being answered."""
        # uvicorn's annotation leaves None out.
        cycle = cast("RequestResponseCycle | None", self.cycle)
        return cycle is None or cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for a request, and keep the number of connections bounded."""
        super().connection_made(transport)
        self._expect_request()
        most = most_connections()
        if len(self.connections) > most:
            oldest = min(
                (cast("Connection", one) for one in self.connections if _is_idle(one)),
                key=lambda one: one._since,
            )
            crowded.warning(
                "more than %d connections: closed one of %s that sent no request",
                most,
                oldest.client[0] if oldest.client else "an unknown address",
            )
            oldest.drop()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if not self.is_idle:
            _cancel(self._request_timer)

    def on_response_complete(self) -> None:
        """Wait for the next request, if it has not arrived already."""
        super().on_response_complete()
        if self.is_idle:
            self._expect_request()

    def pause_writing(self) -> None:
        """Wait for the client to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_TIMEOUT, self.drop)

    def resume_writing(self) -> None:
        """Continue: the client has read."""
        super().resume_writing()
        _cancel(self._write_timer)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the timers."""
        super().connection_lost(exc)
        _cancel(self._request_timer)
        _cancel(self._write_timer)

    def drop(self) -> None:
        """Close it without waiting for the client. It counts no more from now on."""
        self.connections.discard(self)
        # By a reset: otherwise the kernel would keep what the client does not read.
        connected = self.transport.get_extra_info("socket")
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def _expect_request(self) -> None:
        _cancel(self._request_timer)
        self._since = self.loop.time()
        self._request_timer = self.loop.call_later(REQUEST_TIMEOUT, self.drop)


def _is_idle(one: object) -> bool:
    return cast("Connection", one).is_idle


def _cancel(timer: asyncio.TimerHandle | None) -> None:
    """Cancel a timer, if there is one."""
    if timer is not None:
        timer.cancel()
