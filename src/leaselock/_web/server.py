"""The HTTP server of `leaselock web`: one process, one event loop, ended by a signal."""

from __future__ import annotations

import asyncio
import signal
import socket
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import uvicorn

from leaselock._web.application import MOST_VIEWERS, application
from leaselock._web.connections import BACKLOG, Connection, most_connections

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from starlette.applications import Starlette

    from leaselock import AsyncClient

# Those that this system has.
ENDING = tuple(
    signal.Signals(getattr(signal, name))
    for name in ("SIGHUP", "SIGINT", "SIGTERM", "SIGBREAK")
    if hasattr(signal, name)
)
# Seconds for which requests may go on after a signal. Event streams end at once.
GRACE = 3


class Server(uvicorn.Server):
    """A server that leaves signals to `serve`."""

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """Install no handlers: uvicorn's end the process by the signal, and wait for streams."""
        return nullcontext()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; OSError if that is impossible. Port 0 takes a free one."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        # Connections inherit it: the stream of a viewer that is gone without a word ends some time.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def url_of(listener: socket.socket) -> str:
    """The address of the page."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}/" if ":" in host else f"http://{host}:{port}/"


def most_viewers() -> int:
    """How many streams may be open: some connections are left for other requests."""
    return min(MOST_VIEWERS, most_connections() * 3 // 4)


def configuration(app: Starlette) -> uvicorn.Config:
    """How uvicorn serves the application."""
    return uvicorn.Config(
        app,
        lifespan="on",
        http=Connection,
        backlog=BACKLOG,
        ws="none",
        log_config=None,
        # Otherwise each malformed request would write a line.
        log_level="error",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE,
    )


async def serve(
    client: AsyncClient,
    listener: socket.socket,
    *,
    interval: float,
    break_token: str | None,
    hosts: Iterable[str],
    announce: Callable[[], None],
) -> None:
    """Serve the page until a signal of ENDING. A second one ends it without waiting. *announce* is
    called as soon as a signal ends it in order.
    """
    app = application(
        client,
        interval=interval,
        break_token=break_token,
        hosts=hosts,
        most_viewers=most_viewers(),
    )
    server = Server(configuration(app))

    def stop() -> None:
        app.state.page.stopping.set()
        server.force_exit = server.should_exit
        server.should_exit = True

    loop = asyncio.get_running_loop()
    for number in ENDING:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as with nohup
            try:
                loop.add_signal_handler(number, stop)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(stop))
    announce()
    await server.serve([listener])
