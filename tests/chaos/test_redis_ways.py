"""The ways to reach a Redis that the page names: a socket of the machine, and TLS.

Law: each is a URL as the page writes it, to a real server, by threads and by asyncio.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from tests.chaos.scene import PATIENCE
from tests.servers.redis import Redis

import holdfast

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", params=["socket", "socket and password", "TLS"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    way = request.param
    password = "pw" if "password" in way else ""
    with Redis(unix="socket" in way, tls=way == "TLS", password=password) as server:
        yield server.url


def test_a_thread_gets_there(url: str) -> None:
    with holdfast.Client(url, op_timeout=PATIENCE) as client, client.lock("a") as lease:
        assert [report.name for report in client.locks()] == ["a"]
        assert lease.token > 0


def test_a_task_gets_there(url: str) -> None:
    async def main() -> None:
        async with (
            holdfast.AsyncClient(url, op_timeout=PATIENCE) as client,
            client.lock("a") as lease,
        ):
            assert [report.name for report in await client.locks()] == ["a"]
            assert lease.token > 0

    asyncio.run(main())
