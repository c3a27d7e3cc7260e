"""`leaselock web` in a thread of a test, for any client."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import uvicorn
from testkit.servers.process import HOST, eventually

from leaselock._web.application import application
from leaselock._web.server import Server, listen, url_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INTERVAL = 0.2


@contextmanager
def served(make: Callable[[], Any], *, port: int = 0, **options: Any) -> Iterator[str]:
    """Serve the page for the client that *make* returns; the value is its address."""
    listener = listen(HOST, port)
    servers: list[Server] = []

    async def run() -> None:
        client = make()
        app = application(client, **({"interval": INTERVAL} | options))
        server = Server(uvicorn.Config(app, lifespan="on", log_config=None, access_log=False))
        server.page = app.state.page  # type: ignore[attr-defined]
        servers.append(server)
        await server.serve([listener])
        await client.aclose()

    def stop() -> None:
        servers[0].page.stopping.set()  # type: ignore[attr-defined]
        servers[0].should_exit = True

    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    try:
        eventually(lambda: servers and servers[0].started)
        yield url_of(listener)
    finally:
        loop.call_soon_threadsafe(stop)
        thread.join()
        loop.close()
