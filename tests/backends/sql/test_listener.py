"""The listener of protocol "lease" after a lost connection whose session is still open."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest
from testkit.servers.mariadb import MariaDB
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.stage import Stage

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.postgres import Postgres

# Whether the other session is waiting.
SLEEPS = "SELECT 1 FROM information_schema.processlist WHERE info LIKE '%GET_LOCK%, 20)'"
WAITS = (
    "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'advisory' AND application_name = 'rival'"
)


@pytest.fixture
def lease(server: Postgres | MariaDB) -> Iterator[Stage]:
    made = Stage(server, "lease")
    yield made
    made.close()


def liveness_keys(stage: Stage) -> list[object]:
    """The liveness keys of the waiters; None for one that cannot be notified."""
    rows = stage.server.query(f"SELECT liveness_key FROM {stage.table('waiter')}")
    return [key.decode() if isinstance(key, bytes) else key for (key,) in rows]


@contextlib.contextmanager
def lingering(stage: Stage, key: object) -> Iterator[None]:
    """Let another session hold the key, after all of ours were cut."""
    if isinstance(stage.server, MariaDB):
        with stage.server.asked() as cursor, ThreadPoolExecutor(1) as other:
            taken = other.submit(cursor.execute, f"SELECT GET_LOCK('{key}', 20)")
            eventually(lambda: stage.server.query(SLEEPS))
            stage.cut(*stage.sessions())
            taken.result()
            yield
    else:
        url = f"{stage.server.url}?application_name=rival"
        with psycopg.connect(url, autocommit=True) as connection, ThreadPoolExecutor(1) as other:
            taken = other.submit(connection.execute, f"SELECT pg_advisory_lock({key})")
            eventually(lambda: stage.server.query(WAITS))
            stage.cut(*stage.sessions())
            taken.result()
            yield


@pytest.mark.timing
def test_a_listener_that_could_not_lock_its_key_tries_again(lease: Stage) -> None:
    """The server may keep the session of a lost connection, and with it the liveness key."""
    held = take(lease.client(), "a")
    waiter = Waiter(lease.client(), "a")
    # The claim may be stored before the listener has locked its key.
    eventually(lambda: any(liveness_keys(lease)))
    (key,) = liveness_keys(lease)
    with lingering(lease, key):
        eventually(lambda: liveness_keys(lease) == [None])
    eventually(lambda: liveness_keys(lease) == [key])
    held.release()
    waiter.join().release()


def test_a_listener_survives_a_notification_that_is_not_text(postgres: Postgres) -> None:
    """Any user may notify, in a database without an encoding with any bytes. The server then ends
    the listening connection.
    """
    postgres.query("CREATE DATABASE bytes ENCODING 'SQL_ASCII' TEMPLATE template0")
    url = postgres.url.replace("/postgres", "/bytes")
    with (
        leaselock.Client(url) as client,
        leaselock.Client(url) as other,
        psycopg.connect(url, autocommit=True) as stranger,
    ):
        client.setup()
        held = take(client, "a")
        waiter = Waiter(other, "a")
        found = "SELECT client FROM leaselock_waiter"
        eventually(lambda: stranger.execute(found).fetchone())
        (liveness_key,) = stranger.execute(found).fetchone() or (b"",)
        # As bytes, for psycopg would write a text in the encoding of the database.
        stranger.execute(f"NOTIFY \"leaselock_{liveness_key.decode()}\", '\xff'".encode("latin-1"))
        held.release()
        waiter.join().release()
