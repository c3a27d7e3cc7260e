"""FastAPI under uvicorn with four workers: requests for one order run one at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import httpx
import pytest
from testkit.servers.process import HOST, accepts, eventually, free_port
from testkit.servers.redis import Redis

if TYPE_CHECKING:
    from tests.contrib.conftest import Programs

APP = """
    import asyncio, os
    from pathlib import Path
    from typing import Annotated

    from fastapi import FastAPI
    from leaselock import AsyncLease
    from leaselock.contrib.fastapi import lifespan, locked

    app = FastAPI(lifespan=lifespan(os.environ["REDIS"]))

    @app.post("/orders/{order}")
    async def charge(
        order: int, lease: Annotated[AsyncLease, locked("order:{order}", timeout=120)]
    ):
        path = Path(f"count-{order}")
        count = int(path.read_text()) if path.exists() else 0
        await asyncio.sleep(0.01)  # another request may run here
        path.write_text(str(count + 1))
        return {"pid": os.getpid(), "fence": lease.token}
"""
REQUESTS = 60


@pytest.mark.heavy
def test_four_workers_charge_one_order(programs: Programs) -> None:
    programs.write("app.py", APP)
    port = free_port()
    with Redis() as redis:
        words = ["uvicorn", "app:app", "--workers", "4", "--host", HOST, "--port", str(port)]
        server = programs.start(*words, env={"REDIS": redis.url})
        eventually(lambda: server.output().count("Application startup complete") == 4)
        eventually(lambda: accepts(port))

        def post(_: int) -> tuple[int, int]:
            # A connection of its own, which any of the workers may accept.
            reply = httpx.post(f"http://{HOST}:{port}/orders/5", timeout=120.0).raise_for_status()
            return reply.json()["pid"], reply.json()["fence"]

        with ThreadPoolExecutor(12) as threads:
            replies = list(threads.map(post, range(REQUESTS)))
        programs.close()
    assert (programs.folder / "count-5").read_text() == str(REQUESTS)
    assert len({pid for pid, _ in replies}) > 1
    assert len({fence for _, fence in replies}) == REQUESTS
