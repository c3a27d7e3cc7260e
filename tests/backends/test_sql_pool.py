"""A client whose connections are all busy: what it has it keeps and gives back all the same."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import psycopg
from testkit.servers.databases import emptied
from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from testkit.servers.postgres import Postgres

# The statement of ours that waits for a lock: where, and since when.
WAITS = """
    SELECT pid, query_start FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND application_name = 'leaselock'
"""


def test_who_asks_for_more_takes_no_connection_from_who_renews(postgres: Postgres) -> None:
    """The whole pool is in the midst of a question that is not answered (hazard D6)."""
    url = f"{emptied(postgres)}?pool=1"
    with leaselock.Client(url) as client, psycopg.connect(postgres.url) as another:
        for name in ("a", "b"):
            with client.lock(name):
                pass
        lease = client.lock("a", lease=60.0).acquire(timeout=0.0)
        another.execute("SELECT 1 FROM leaselock_lock WHERE name = 'b' FOR UPDATE")
        tokens: list[int] = []

        def ask() -> None:
            with client.lock("b", timeout=30.0) as other:
                tokens.append(other.token)

        thread = threading.Thread(target=ask)
        thread.start()
        eventually(lambda: len(postgres.query(WAITS)) == 1)
        before = postgres.query(WAITS)
        lease.extend(60.0)
        lease.release()
        assert postgres.query(WAITS) == before
        another.rollback()
        thread.join()
        assert len(tokens) == 1
