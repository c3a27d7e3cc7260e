"""The token counters of names that are not used any more."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from tests.backends.rivals import Waiter, take
from tests.backends.sql.sessions import Direct
from tests.backends.sql.stage import PROTOCOLS, Stage

import leaselock
from leaselock._backends.sql import maintenance
from leaselock._backends.sql.lease import Lease
from leaselock._backends.sql.lock_row import Requester
from leaselock._backends.sql.store import store_of
from leaselock._backends.sql.url import parsed
from leaselock._core.contract.backend import Acquire, Claim
from leaselock._drivers import system_env

if TYPE_CHECKING:
    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres

    from leaselock._backends.sql.statements import Value
    from leaselock._core.contract.backend import Mode

NAMES = ("a", "b", "c")
EXCLUSIVE: tuple[Mode, ...] = ("exclusive", "exclusive")
WEEK = 7 * 86400 * 1_000_000
NEVER = 2**62


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


def test_gc_removes_what_crashed_clients_leave(
    server: Postgres | MariaDB, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Holds, waiters and rows, more than are looked at at once, beside holds that are valid."""
    monkeypatch.setattr(maintenance, "BATCH", 2)
    stage = Stage(server, "lease")
    held, read = take(stage.client(), "held"), stage.client().rwlock("read").read.acquire()
    assert read is not None
    direct = Direct(store_of(parsed(stage.url), system_env.now))
    lease, own = Lease(direct.dialect), direct.executor(direct.connect())
    requester = Requester("crashed", direct.dialect.interrupts, None)
    for number, mode in enumerate((*EXCLUSIVE, *EXCLUSIVE, "shared", *EXCLUSIVE, "shared")):
        claim = Claim(f"n{number}", f"crashed:{number}", "crashed", 0.001, "{}", 0.0, mode=mode)
        direct.run(lease.answer(Acquire(claim, False), requester, own))
    waiting = Claim("held", "crashed:9", "crashed", 0.001, "{}", 0.0)
    direct.run(lease.answer(Acquire(waiting, True), requester, own))
    stage.change(f"UPDATE {stage.table('waiter')} SET expires = 1")

    def left() -> list[int]:
        tables = [stage.table(name) for name in ("lock", "hold", "waiter")]
        return [int(server.query(f"SELECT count(*) FROM {table}")[0][0]) for table in tables]

    def collected(ttl: str) -> int:
        with leaselock.Client(f"{stage.url}&token_ttl={ttl}") as client:
            return client.gc()

    assert left() == [2 + 8, 1 + 2, 1]
    # The holds of the crashed, and their waiter; then nothing, and then their counters.
    assert collected("0") == 8 + 1
    assert left() == [2 + 8, 1, 0]
    assert collected("0") == 0
    assert collected("0.001s") == 8
    assert left() == [2, 1, 0]
    held.release()
    read.release()
    direct.close()
    stage.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_token_is_greater_though_its_row_is_deleted_meanwhile(
    server: Postgres | MariaDB, protocol: str
) -> None:
    """The row was ahead of the clock: `gc` deletes it while another client acquires the lock."""
    stage = Stage(server, protocol)
    direct = Direct(store_of(parsed(stage.url), system_env.now))
    # MySQL lets a request wait for a row for a second, and a busy machine may need longer.
    assert any(is_greater_than_deleted(stage, direct, name) for name in "abcdefgh")
    direct.close()
    stage.close()


def is_greater_than_deleted(stage: Stage, direct: Direct, name: str) -> bool:
    """Delete a row while a client waits for it; return False if that client gave up before."""
    before = take(stage.client(), name)
    before.release()
    stage.change(f"UPDATE {stage.table('lock')} SET token = token + {WEEK}")
    stage.change(f"DELETE FROM {stage.table('session')}")
    collector = direct.connect()
    values: dict[str, Value] = {"now": NEVER, "before": NEVER, "after": "", "last": "z"}
    direct.execute(
        collector,
        (
            "begin transaction",
            ("raise floor", {"token": before.token + WEEK}),
            ("collect locks", values),
        ),
    )
    waiter = Waiter(stage.client(), name)
    eventually(lambda: stage.server.blocked() or waiter.error)
    direct.execute(collector, ("commit transaction",))
    try:
        after = waiter.join()
    except leaselock.StoreError:
        return False
    assert after.token > before.token + WEEK
    after.release()
    return True
