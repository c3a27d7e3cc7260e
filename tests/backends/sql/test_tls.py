"""Databases with TLS, configured by a URL as on the page of the store, and Unix sockets.

Invariant: if encryption was requested, nothing is sent to a server whose name is not verified.
"""

from __future__ import annotations

import asyncio
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import sqlalchemy
from testkit.servers.mariadb import MariaDB
from testkit.servers.postgres import USER, Postgres, owned_folder
from testkit.servers.process import HERE, HOST, eventually
from testkit.servers.tls import Certificates
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import PROTOCOLS

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.variant

# The server's user, the URL option for the authority, the further options, and those without TLS.
NAMED = {
    "postgresql": ("postgres", "sslrootcert", "&sslmode=verify-full", "?sslmode=disable"),
    "mysql": ("mysql", "ssl_ca", "", "?ssl=no"),
}


@contextmanager
def secured(scheme: str) -> Iterator[tuple[Postgres | MariaDB, Certificates]]:
    """A server with tables that accepts only TLS connections."""
    user = NAMED[scheme][0]
    folder = owned_folder("tls-", user)
    made = Certificates(folder)
    for file in (made.ca, made.cert, made.key):
        shutil.chown(file, user)
    server = postgres_of(made) if scheme == "postgresql" else mariadb_of(made)
    with server:
        with leaselock.Client(url_of(server, made)) as client:
            client.setup()
        yield server, made
    shutil.rmtree(folder)


def postgres_of(made: Certificates) -> Postgres:
    files = {"ssl_cert_file": str(made.cert), "ssl_key_file": str(made.key)}
    server = Postgres(HERE, ssl="on", unix_socket_directories=str(made.ca.parent), **files)
    hba = server.folder / "data" / "pg_hba.conf"
    hba.write_text(f"hostnossl all all all reject\n{hba.read_text()}")
    server.query("SELECT pg_reload_conf()")
    return server


def mariadb_of(made: Certificates) -> MariaDB:
    files = {"ssl-ca": str(made.ca), "ssl-cert": str(made.cert), "ssl-key": str(made.key)}
    server = MariaDB(**files)
    server.query("ALTER USER leaselock@'%' REQUIRE SSL")
    return server


def url_of(server: Postgres | MariaDB, made: Certificates) -> str:
    _, authority, more, _ = NAMED[server.url.partition(":")[0]]
    return f"{server.url}?{authority}={made.ca}{more}"


@pytest.fixture(scope="module", params=NAMED)
def server(request: pytest.FixtureRequest) -> Iterator[tuple[Postgres | MariaDB, Certificates]]:
    with secured(request.param) as found:
        yield found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_lock_is_handed_over_by_tls(
    server: tuple[Postgres | MariaDB, Certificates], protocol: str
) -> None:
    url = f"{url_of(*server)}&protocol={protocol}"
    with leaselock.Client(url) as client, leaselock.Client(url) as other:
        lease = take(client, "a")
        waiter = Waiter(other, "a")
        eventually(lambda: client.lock("a").waiters() or protocol != "lease")
        lease.release()
        then = waiter.join()
        assert then.token > lease.token
        then.release()
    asyncio.run(tasks_hand_over(url))


async def tasks_hand_over(url: str) -> None:
    async with leaselock.AsyncClient(url) as client, leaselock.AsyncClient(url) as other:
        lease = await client.lock("a").acquire()
        assert lease is not None
        waiter = asyncio.create_task(other.lock("a").try_acquire(timeout=30.0))
        await lease.release()
        then = await waiter
        assert then is not None
        assert then.token > lease.token
        await then.release()


def test_no_request_is_sent_without_tls(server: tuple[Postgres | MariaDB, Certificates]) -> None:
    """No request is sent without TLS, nor to a server whose name is not verified."""
    place, made = server
    plain = place.url + NAMED[place.url.partition(":")[0]][3]
    stranger = url_of(place, Certificates(made.ca.parent / "stranger"))
    for url, words in ((plain, "reject|Access denied"), (stranger, "certificate verify failed")):
        with leaselock.Client(url) as client, pytest.raises(leaselock.NotApplied, match=words):
            client.lock("a").acquire(timeout=0.0)


def test_a_socket_of_the_file_system(server: tuple[Postgres | MariaDB, Certificates]) -> None:
    """A Unix socket needs no TLS."""
    place, made = server
    url = f"postgresql://{USER}@/postgres?host={made.ca.parent}&port={place.port}"
    if isinstance(place, MariaDB):
        place.query("ALTER USER leaselock@'%' REQUIRE NONE")
        url = place.url.replace(f"{HOST}:{place.port}", "localhost")
        url += f"?unix_socket={place.folder}/socket"
    with leaselock.Client(url) as client:
        take(client, "a").release()


def test_doctor_warns_of_tls_that_is_not_verified(
    server: tuple[Postgres | MariaDB, Certificates],
) -> None:
    place, made = server
    assert encryption(url_of(place, made)) == [("ok", "and the server's certificate is verified")]
    if isinstance(place, Postgres):
        problem = "the server's name is not verified, sslmode="
        for mode in ("require", "verify-ca"):
            url = f"{place.url}?sslmode={mode}&sslrootcert={made.ca}"
            assert encryption(url) == [("warn", f"{problem}{mode}")]
        assert encryption(place.url) == [("ok", f"{problem}prefer")]
        return
    url = place.url.replace("mysql:", "mysql+pymysql:")
    careless: list[tuple[dict[str, object], str]] = [
        ({"ca": str(made.ca), "check_hostname": False}, "the server's name is not verified"),
        ({"verify_mode": False, "check_hostname": False, "cipher": "ALL"}, "is not verified"),
    ]
    for words, problem in careless:
        engine = sqlalchemy.create_engine(url, connect_args={"ssl": words})
        ((level, found),) = encryption(engine)
        assert (level, found.endswith(problem)) == ("warn", True)
    # PyMySQL uses TLS where it can, without verifying anything, since a release.
    place.query("ALTER USER leaselock@'%' REQUIRE NONE")
    assert encryption(place.url) in ([], [("ok", "the server's certificate is not verified")])
    place.query("ALTER USER leaselock@'%' REQUIRE SSL")


def encryption(store: str | sqlalchemy.Engine) -> list[tuple[str, str]]:
    """Return what `doctor` finds of the encryption."""
    with leaselock.Client(store) as client:
        found = [f for f in client.doctor() if ": TLS" in f.what]
    return [(f.level, re.split(r", (?=and the)|: ", f.what)[-1]) for f in found]


def test_doctor_has_nothing_to_say_of_a_connection_without_tls() -> None:
    with Postgres() as plain, leaselock.Client(plain.url) as client:
        client.setup()
        assert encryption(plain.url) == []
