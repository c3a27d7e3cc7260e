"""Records that cannot be read: each is shown with the reason, and hides no other lock."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.damage import Damage, in_redis, in_sessions, in_sql, in_sqlite, in_zookeeper
from testkit.servers.databases import emptied
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from tests.views import (
    LIMIT,
    Locks,
    check_calls,
    check_commands,
    check_page,
    check_shown,
    listed,
    run,
)
from tests.web.serving import served

import leaselock
from leaselock._backends.redis.keys import PREFIX, index_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.zookeeper import Ensemble

ROOT = "/unreadable"


def check(url: str, damages: Sequence[Damage], sound: Sequence[str]) -> None:
    """Damage one lock in each way, and look at all views. *sound* are the kinds of the others."""
    by_name = {f"damaged:{n}": damage for n, damage in enumerate(damages)}
    kinds = {name: damage.kinds[0] for name, damage in by_name.items()}
    kinds |= {f"sound:{kind}": kind for kind in sound}
    with Locks(url, kinds) as locks:
        for n, (name, damage) in enumerate(by_name.items()):
            damage.act(name, Random(n))
        found = listed(url)
        check_shown(found, kinds, by_name)
        check_commands(url, found, list(kinds))
        check_calls(url, kinds)
        with served(lambda: leaselock.AsyncClient(url)) as page:
            check_page(page, found, kinds)
        for name, damage in by_name.items():
            error = locks.tried(name, refuses=damage.refuses)
            if damage.refuses:
                assert isinstance(error, NotApplied), (damage.what, error)
                assert error.reason == "misconfigured", (damage.what, error)
                assert name in str(error)
        for name in kinds.keys() - by_name.keys():
            assert locks.tried(name) is None
        check_shown(listed(url), kinds, by_name)


def test_in_redis(redis: Redis) -> None:
    check(redis.url, in_redis(redis), ("held", "waited", "readers", "permits"))


def test_an_overwritten_index_hides_no_lock(redis: Redis) -> None:
    kinds = {"a": "held", "b": "waited"}
    with Locks(redis.url, kinds):
        index = index_of(None, PREFIX)
        assert redis.ask("TYPE", index) == "zset"
        redis.ask("DEL", index)
        redis.ask("SET", index, "junk")
        check_shown(listed(redis.url), kinds, ())
        with leaselock.Client(redis.url) as client:
            assert client.lock("c").try_acquire()


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("form", ["string", "getset"])
def test_in_formats_whose_lock_is_a_string(redis: Redis, form: str) -> None:
    check(f"{redis.url}?protocol={form}", in_redis(redis, form), ("held",))


def test_in_sqlite(file: str, tmp_path: Path) -> None:
    damages = in_sqlite(str(tmp_path / "locks.db"))
    check(file, damages, ("held", "waited", "readers", "permits"))


@pytest.mark.variant
def test_in_postgres(postgres: Postgres) -> None:
    url = emptied(postgres)
    check(url, in_sql(postgres), ("held", "waited", "readers", "permits"))


def test_in_mariadb(mariadb: MariaDB) -> None:
    url = emptied(mariadb)
    check(url, in_sql(mariadb), ("held", "waited", "readers", "permits"))


@pytest.fixture(params=["postgres", "mariadb"])
def database(request: pytest.FixtureRequest) -> Postgres | MariaDB:
    server: Postgres | MariaDB = request.getfixturevalue(request.param)
    return server


def change(server: Postgres | MariaDB, *statements: str) -> None:
    """Change one of the tables."""
    if isinstance(server, Postgres):
        server.query("; ".join(statements).replace("locks.", ""))
    else:
        server.do(*statements)


@pytest.mark.parametrize("protocol", ["row", "advisory"])
def test_of_sessions_in_databases(database: Postgres | MariaDB, protocol: str) -> None:
    url = f"{emptied(database)}?protocol={protocol}"
    check(url, in_sessions(database), ("held", "waited"))


@pytest.mark.parametrize("protocol", ["row", "advisory"])
@pytest.mark.parametrize("column", ["id", "liveness_key", "backend"])
def test_gc_keeps_the_damaged_row_of_a_session_that_lives(
    database: Postgres | MariaDB, protocol: str, column: str
) -> None:
    url = f"{emptied(database)}?protocol={protocol}"
    with leaselock.Client(url) as holder, leaselock.Client(url) as other:
        lease = holder.lock("a").acquire()
        other_key = {"id": "concat(client, ':9999')", "liveness_key": "'5'", "backend": "5"}
        change(
            database,
            f"UPDATE locks.leaselock_session SET since = 0, {column} = {other_key[column]}",
        )
        other.gc()
        (found,) = other.locks()
        assert found.unreadable is not None
        assert not other.lock("a").try_acquire()
        with pytest.raises(NotApplied, match="cannot be read"):
            other.break_lock("a")
        lease.release()
        holder.close()
        eventually(lambda: other.gc() or not other.locks())
        assert other.lock("a").try_acquire()


def test_a_lock_whose_row_names_another_is_not_free(database: Postgres | MariaDB) -> None:
    url = f"{emptied(database)}?protocol=advisory"
    with leaselock.Client(url) as holder, leaselock.Client(url) as other:
        holder.lock("a").acquire()
        change(database, "UPDATE locks.leaselock_session SET name = 'b'")
        assert other.lock("a").locked()
        assert not other.lock("a").try_acquire()
        code, text = run(url, "show", "a")
        assert (code, "another program" in text) == (0, True), text


@pytest.mark.parametrize("side", ["write", "read"])
def test_the_row_of_a_held_lock_cannot_be_changed(database: Postgres | MariaDB, side: str) -> None:
    """By protocol "row" the lock is that of the row."""
    url = f"{emptied(database)}?protocol=row"
    brief = "SET lock_timeout = '50ms'"
    if not isinstance(database, Postgres):
        brief = "SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 1"
    with leaselock.Client(url) as holder, leaselock.Client(url) as other:
        getattr(holder.rwlock("a"), side).acquire()
        for what in (
            "DELETE FROM locks.leaselock_row",
            "UPDATE locks.leaselock_row SET name = 'b'",
        ):
            with pytest.raises(Exception, match=r"(?i)lock ?(wait )?timeout"):
                change(database, brief, what)
        assert not other.lock("a").try_acquire()


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[Any]:
    client = KazooClient(ensemble.hosts)
    client.start()
    yield client
    client.delete(ROOT, recursive=True)
    client.stop()
    client.close()


@pytest.mark.variant
def test_in_zookeeper(ensemble: Ensemble, kazoo: Any) -> None:
    url = f"zookeeper://{ensemble.hosts}{ROOT}"
    check(url, in_zookeeper(kazoo, ROOT), ("held", "waited", "readers", "permits"))


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize("data", [b"", b"junk", b'{"id": "another", "since": 1}'])
def test_of_the_only_node_in_zookeeper(ensemble: Ensemble, kazoo: Any, data: bytes) -> None:
    """By protocol "single" its data is that of another program: it stays held, until it is
    released, or its lease ends.
    """
    url = f"zookeeper://{ensemble.hosts}{ROOT}?protocol=single"
    with leaselock.Client(url) as holder, leaselock.Client(url) as other:
        lease = holder.lock("a").acquire()
        kazoo.set(f"{ROOT}/a", data)
        assert [lock.name for lock in other.locks()] == ["a"]
        assert not other.lock("a").try_acquire()
        lease.release()
        assert other.lock("a").try_acquire()
        other.lock("b", lease=0.5, renew=False).acquire()
        kazoo.set(f"{ROOT}/b", data)
        holder.lock("b").acquire(timeout=LIMIT)


def test_on_one_master_of_a_redlock(redis: Redis) -> None:
    with Redis() as second, Redis() as third:
        url = ",".join(server.url for server in (redis, second, third))
        check(url, in_redis(redis, "vote"), ("held", "waited"))
