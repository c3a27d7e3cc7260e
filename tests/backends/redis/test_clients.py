"""Clients made from a redis-py or valkey-py client, which supplies the address and credentials.

Invariant: they exclude the clients that name the same servers by a URL.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import HOST
from testkit.servers.redis import Redis
from testkit.servers.sentinel import NAME, Sentinels

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.cluster import Cluster

pytestmark = pytest.mark.variant

LIBRARIES = ("redis", "valkey")
COLOURS = ("", ".asyncio")
WAYS = [(library, colour) for library in LIBRARIES for colour in COLOURS]
USER = "user worker on >pa%ss@w ~* &* +@all"
LONG = 60.0


@pytest.fixture(scope="module")
def secure() -> Iterator[Redis]:
    """A server with TLS and users."""
    with Redis(tls=True, acl=["user default on nopass ~* &* +@all", USER]) as server:
        yield server


@pytest.fixture(scope="module")
def local() -> Iterator[Redis]:
    """A server on a Unix socket."""
    with Redis(unix=True) as server:
        yield server


@pytest.fixture(scope="module")
def sentinels() -> Iterator[Sentinels]:
    with Sentinels(password="secret") as sentinels:
        yield sentinels


def kind_of(library: str, colour: str, module: str, name: str) -> Any:
    """Return a class of one of the libraries, blocking or asyncio."""
    name = name.replace("Redis", "Valkey") if library == "valkey" else name
    return getattr(import_module(f"{library}{colour}{module}"), name)


def same_locks(theirs: Any, url: str) -> None:
    """Clients made from *theirs* and clients made from the URL exclude each other."""
    asyncio.run(tasks_exclude(theirs, url))
    with leaselock.Client(theirs) as client, leaselock.Client(url) as other:
        with client.lock("a", lease=LONG) as lease:
            holder = other.lock("a").holder()
            assert holder is not None
            assert holder.token == lease.token
        with other.lock("a", lease=LONG):
            assert client.lock("a").try_acquire() is None
        assert "pa%ss@w" not in repr(client)
        assert "secret" not in repr(client)


async def tasks_exclude(theirs: Any, url: str) -> None:
    async with leaselock.AsyncClient(theirs) as client, leaselock.AsyncClient(url) as other:
        async with client.lock("a", lease=LONG):
            assert await other.lock("a").try_acquire() is None
        async with other.lock("a", lease=LONG):
            assert await client.lock("a").try_acquire() is None


@pytest.mark.parametrize(("library", "colour"), WAYS)
def test_a_client_of_one_server_with_users_and_tls(
    library: str, colour: str, secure: Redis
) -> None:
    assert secure.certificates is not None
    kind = kind_of(library, colour, "", "Redis")
    theirs = kind(
        host="localhost",
        port=secure.port,
        db=3,
        username="worker",
        password="pa%ss@w",
        ssl=True,
        ssl_ca_certs=secure.certificates.ca,
    )
    url = f"rediss://localhost:{secure.port}/3?ssl_ca_certs={secure.certificates.ca}"
    same_locks(theirs, url)


@pytest.mark.parametrize(("library", "colour"), WAYS)
def test_a_client_at_a_socket_of_the_file_system(library: str, colour: str, local: Redis) -> None:
    theirs = kind_of(library, colour, "", "Redis")(unix_socket_path=local.socket)
    same_locks(theirs, f"unix://{local.socket}")


@pytest.mark.parametrize(("library", "colour"), WAYS)
def test_a_client_behind_sentinels(library: str, colour: str, sentinels: Sentinels) -> None:
    hosts = [(HOST, sentinel.port) for sentinel in sentinels.sentinels]
    kind = kind_of(library, colour, ".sentinel", "Sentinel")
    same_locks(kind(hosts).master_for(NAME, password="secret"), sentinels.url)


@pytest.mark.parametrize(("library", "colour"), WAYS)
def test_a_client_of_a_cluster(library: str, colour: str, cluster: Cluster) -> None:
    kind = kind_of(library, colour, ".cluster", "RedisCluster")
    # Blocking clients connect in their constructor.
    theirs = kind(host=HOST, port=cluster.servers[0].port)
    same_locks(theirs, cluster.url)


@pytest.mark.parametrize("word", ["ssl_validate_ocsp", "sentinel_ssl_validate_ocsp"])
def test_an_option_that_a_url_cannot_express_is_refused(word: str) -> None:
    """In a URL the option is a string, which redis-py ignores."""
    with pytest.raises(ValueError, match=f"does not know {word}"):
        leaselock.Client(f"rediss+sentinel://{HOST}/{NAME}?{word}=true")
