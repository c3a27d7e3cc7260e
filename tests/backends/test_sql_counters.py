"""The token counters of names that are not used any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.servers.databases import emptied
from tests.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from tests.servers.postgres import Postgres

NAMES = ("a", "b", "c")


def use(url: str) -> dict[str, int]:
    """Acquire each lock once; return the tokens."""
    tokens = {}
    with leaselock.Client(url) as client:
        for name in NAMES:
            with client.lock(name) as lease:
                tokens[name] = lease.token
    return tokens


def rows(postgres: Postgres) -> int:
    """How many names have a row."""
    tables = ("leaselock_lock", "leaselock_row")
    return sum(int(postgres.query(f"SELECT count(*) FROM {table}")[0][0]) for table in tables)


@pytest.mark.parametrize("protocol", ["lease", "row"])
def test_gc_removes_what_is_older_than_the_url_says(postgres: Postgres, protocol: str) -> None:
    url = f"{emptied(postgres)}?protocol={protocol}"
    before, done = use(url), time.monotonic()
    assert rows(postgres) >= len(NAMES)
    with leaselock.Client(f"{url}&token_ttl=0") as client:
        client.gc()
    assert rows(postgres) >= len(NAMES)
    eventually(lambda: time.monotonic() - done > 0.3)
    with leaselock.Client(f"{url}&token_ttl=0.2") as client:
        assert client.gc() >= len(NAMES) - 1
    # The session that released last keeps its name for some seconds.
    assert rows(postgres) <= (0 if protocol == "lease" else 2)
    after = use(url)
    assert all(after[name] > before[name] for name in NAMES)
