"""A server that accepts connections and says nothing: no request outlives its deadline.

A renewal that outlives its deadline would outlive its lease. Each operation here sends at most two
requests, of which each may end a little after its deadline.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import HOST, closed_port
from testkit.servers.redis import SPELLINGS

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timing

AWS = "region=eu-1&endpoint=http://ADDRESS"
STORES = {
    "redis": "redis://ADDRESS",
    "redis with TLS": "rediss://ADDRESS",
    "sentinel": "redis+sentinel://ADDRESS/main",
    "cluster": "redis+cluster://ADDRESS",
    "redlock": ",".join(f"redis://{host}:PORT" for host in SPELLINGS),
    "postgresql": "postgresql://me@ADDRESS/db",
    "mysql": "mysql://me@ADDRESS/db",
    "zookeeper": "zookeeper://ADDRESS",
    "etcd": "etcd://ADDRESS",
    "etcd with TLS": "etcds://ADDRESS",
    "kubernetes": "kubernetes://locks?kubeconfig=KUBECONFIG",
    "dynamodb": f"dynamodb://id:secret@locks?{AWS}",
    "s3": f"s3://id:secret@locks?{AWS}",
}
LIMIT = 0.3
LATER = 0.2


@pytest.fixture
def address() -> Iterator[str]:
    with socket.create_server((HOST, 0), backlog=100) as silent:
        yield f"{HOST}:{silent.getsockname()[1]}"


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, address: str, tmp_path: Path) -> str:
    kubeconfig = {
        "current-context": "test",
        "contexts": [{"name": "test", "context": {"cluster": "test"}}],
        "clusters": [{"name": "test", "cluster": {"server": f"http://{address}"}}],
    }
    (tmp_path / "kubeconfig").write_text(json.dumps(kubeconfig))
    text = STORES[request.param].replace("KUBECONFIG", str(tmp_path / "kubeconfig"))
    warnings.simplefilter("ignore", UserWarning)
    return text.replace("ADDRESS", address).replace("PORT", address.rpartition(":")[2])


def test_a_request_ends_on_time(url: str) -> None:
    """The first one opens the store, which takes longer."""
    with leaselock.Client(url, op_timeout=LIMIT) as client:
        with suppress(leaselock.StoreError):
            client.lock("a").holder()
        for ask in (client.lock("a").holder, client.lock("a").acquire, client.lock("b").holder):
            began = time.monotonic()
            with pytest.raises(ConnectionError):
                ask()
            assert time.monotonic() - began < LIMIT + 2 * LATER


@pytest.mark.parametrize(("options", "limit"), [({}, 0.5), ({"outage_timeout": 0.2}, 0.7)])
def test_a_refused_connection_is_no_long_wait(options: dict[str, float], limit: float) -> None:
    """With the usual op_timeout. Sentinels and clusters are asked for longer, for a failover."""
    policy: Any = {"on_outage": "wait", **options} if options else {}
    for url in ("redis://ADDRESS", "postgresql://me@ADDRESS/db", "etcd://ADDRESS"):
        with closed_port() as port, leaselock.Client(url.replace("ADDRESS", f"{HOST}:{port}")) as c:
            with pytest.raises(leaselock.StoreUnreachable):
                c.lock("a", **policy).acquire()
            began = time.monotonic()
            with pytest.raises(leaselock.StoreUnreachable):
                c.lock("a", **policy).acquire()
            assert time.monotonic() - began < limit


def test_a_request_of_a_task_ends_on_time(url: str) -> None:
    async def ask_all() -> None:
        async with leaselock.AsyncClient(url, op_timeout=LIMIT) as client:
            with suppress(leaselock.StoreError):
                await client.lock("a").holder()
            for ask in (client.lock("a").holder, client.lock("a").acquire, client.lock("b").holder):
                began = time.monotonic()
                with pytest.raises(ConnectionError):
                    await ask()
                assert time.monotonic() - began < LIMIT + 2 * LATER

    asyncio.run(ask_all())
