"""The kinds of connection that the page of Redis names, on real servers, with threads and asyncio.

They are a Unix socket, and TLS to a server, a cluster, or a sentinel and its master.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import HOST, Process, eventually, free_port, program
from testkit.servers.redis import Redis
from testkit.servers.resp import Wire
from tests.backends.redis.fixture import TIMEOUT

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from testkit.servers.tls import Certificates

pytestmark = pytest.mark.variant


@contextmanager
def a_cluster() -> Iterator[str]:
    """A cluster of one server with all slots."""
    bus = ("cluster-enabled", "yes", "cluster-port", str(free_port()), "tls-cluster", "yes")
    with Redis(*bus, tls=True) as server:
        server.ask("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        eventually(lambda: "cluster_state:ok" in server.ask("CLUSTER", "INFO"))
        yield server.url.replace("rediss://", "rediss+cluster://").replace("/0?", "?")


@contextmanager
def behind_a_sentinel() -> Iterator[str]:
    """A server and a sentinel that both use TLS."""
    with Redis("tls-replication", "yes", tls=True) as server:
        made, port = server.certificates, free_port()
        assert made is not None
        conf = server.folder / "sentinel"
        conf.write_text(
            f"port 0\ntls-port {port}\nbind {HOST}\ndir {server.folder}\ntls-replication yes\n"
            f"tls-cert-file {made.cert}\ntls-key-file {made.key}\ntls-ca-cert-file {made.ca}\n"
            f"tls-auth-clients no\nsentinel monitor main {HOST} {server.port} 1\n"
        )
        sentinel = Process([program("redis-sentinel"), str(conf)], server.folder / "output")
        try:
            assert sentinel.ready(lambda: knows_main(port, made)), sentinel.output()
            yield f"rediss+sentinel://{HOST}:{port}/main?ssl_ca_certs={made.ca}"
        finally:
            sentinel.kill()


def knows_main(port: int, made: Certificates) -> bool:
    """Return whether the sentinel answers with TLS, and is connected to the master."""
    try:
        with Wire(port, tls=made.context()) as wire:
            flat = wire.ask("SENTINEL", "MASTER", "main")
    except OSError:
        return False
    facts = dict(zip(flat[::2], flat[1::2], strict=True))
    # Until then the flags end in ",disconnected".
    return bool(facts["flags"] == "master")


@contextmanager
def a_server(way: str) -> Iterator[str]:
    password = "pw" if "password" in way else ""
    with Redis(unix="socket" in way, tls=way == "TLS", password=password) as server:
        yield server.url


WAYS: dict[str, Callable[[], AbstractContextManager[str]]] = {
    "TLS to a cluster": a_cluster,
    "TLS to a sentinel": behind_a_sentinel,
    **{way: partial(a_server, way) for way in ("socket", "socket and password", "TLS")},
}


@pytest.fixture(scope="module", params=WAYS)
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    with WAYS[request.param]() as url:
        yield url


def test_a_thread_connects(url: str) -> None:
    with leaselock.Client(url, op_timeout=TIMEOUT) as client, client.lock("a") as lease:
        assert [report.name for report in client.locks()] == ["a"]
        assert lease.token > 0


def test_a_task_connects(url: str) -> None:
    async def main() -> None:
        async with (
            leaselock.AsyncClient(url, op_timeout=TIMEOUT) as client,
            client.lock("a") as lease,
        ):
            assert [report.name for report in await client.locks()] == ["a"]
            assert lease.token > 0

    asyncio.run(main())
