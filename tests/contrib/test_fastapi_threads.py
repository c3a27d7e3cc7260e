"""A dependency of FastAPI that is entered in one thread of its pool and left in another one."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import fastapi
import httpx
import pytest
import uvicorn
from anyio import to_thread
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

REQUESTS = 12


@pytest.mark.heavy
def test_requests_hold_the_lock_one_after_the_other(file: str) -> None:
    client = leaselock.Client(file)
    threads: list[tuple[int, int]] = []
    inside: list[int] = []
    busy: list[asyncio.Task[bool]] = []
    left: dict[int, threading.Event] = {}
    app = fastapi.FastAPI()

    def locked() -> Iterator[leaselock.Lease]:
        entered = threading.get_ident()
        # Two requests that enter in the same thread of the pool would be one owner otherwise.
        with client.lock("a", timeout=20, owner="lock") as lease:
            left[lease.token] = threading.Event()
            try:
                yield lease
            finally:
                inside.clear()
                left[lease.token].set()
        threads.append((entered, threading.get_ident()))

    dependency = fastapi.Depends(locked)

    @app.get("/")
    async def root(lease: Any = dependency) -> int:
        assert not inside
        inside.append(1)
        # The thread that entered is most likely busy until another one has left the dependency.
        busy.append(asyncio.create_task(to_thread.run_sync(left[lease.token].wait, 20)))
        await asyncio.sleep(0)
        return int(lease.token)

    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical"))
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        try:
            eventually(lambda: server.started)

            def ask(_: int) -> int:
                answer = httpx.get(f"http://127.0.0.1:{port}/", timeout=60)
                return int(answer.raise_for_status().text)

            with ThreadPoolExecutor(REQUESTS) as people:
                tokens = list(people.map(ask, range(REQUESTS)))
        finally:
            server.should_exit = True
            thread.join()
    assert len(set(tokens)) == REQUESTS
    eventually(lambda: len(threads) == REQUESTS)
    assert any(entered != last for entered, last in threads)
    assert not client.lock("a").locked()
    client.close()
