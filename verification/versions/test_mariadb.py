"""MySQL is tested as MySQL, and newer releases of MariaDB."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from testkit.proxy import Proxy
from testkit.servers.mariadb import MariaDB, pymysql
from testkit.servers.process import HOST
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import PROTOCOLS
from tests.backends.sql.test_tls import secured, url_of

import leaselock

pytestmark = pytest.mark.nightly
# Seconds of a handshake, and the least number of its messages, each after the one before: greeting,
# hello of the client, hello of the server, login, answer.
SLOW, MESSAGES = 0.17, 5
every = pytest.mark.parametrize("version", ["mysql-8.0", "mariadb-11.4"], indirect=True)
only_mariadb = pytest.mark.parametrize("version", ["mariadb-11.4"], indirect=True)
only_mysql = pytest.mark.parametrize("version", ["mysql-8.0"], indirect=True)


@every
def test_garbage_is_collected(version: str) -> None:
    """MySQL 8.0.33 ended with signal 11 when it looked for names with ended waiters."""
    with MariaDB() as server:
        with leaselock.Client(server.url) as client:
            client.setup()
            with client.lock("a"):
                assert client.lock("a").locked()
        command = [sys.executable, "-m", "leaselock", "gc", "--url", server.url]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        assert server.running().alive, server.running().output()
        assert ran.returncode == 0, ran.stderr


@only_mysql
def test_without_tls_a_login_that_needs_cryptography_says_so(version: str) -> None:
    """PyMySQL encrypts the password of `caching_sha2_password` with the package cryptography."""
    missing = "import sys; sys.modules['cryptography'] = None; "
    main = "from leaselock._cli import main; sys.exit(main(['ls', '--url', sys.argv[1]]))"
    with MariaDB() as server:
        with leaselock.Client(server.url) as client:
            client.setup()
        server.restart()  # forgets the passwords that it has seen
        url = f"{server.url}?ssl=no"
        ran = subprocess.run(
            [sys.executable, "-c", missing + main, url], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 78, ran.stderr
        assert "pip install cryptography" in ran.stderr
        with leaselock.Client(server.url) as client:
            client.lock("a").acquire().release()


@only_mariadb
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_slow_handshake_with_tls(version: str, protocol: str) -> None:
    """A connection takes 170 ms, and needs no setting."""
    with secured("mysql") as (server, made), Proxy(server.port) as proxy:
        assert isinstance(server, MariaDB)
        proxy.delay = SLOW / MESSAGES
        began = time.monotonic()
        login = {"user": "leaselock", "password": "secret", "ssl_ca": str(made.ca)}
        pymysql.connect(host=HOST, port=proxy.port, **login).close()
        assert time.monotonic() - began >= SLOW
        url = url_of(server, made).replace(f":{server.port}/", f":{proxy.port}/")
        with leaselock.Client(f"{url}&protocol={protocol}") as client:
            first = take(client, "a")
            waiter = Waiter(client, "a")
            first.release()
            second = waiter.join()
            assert second.token > first.token
            second.release()
