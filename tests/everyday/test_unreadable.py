"""Records that cannot be read: each is shown with the reason, and hides no other lock."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.damage import Damage, in_redis, in_sql, in_sqlite, in_zookeeper
from testkit.servers.databases import emptied
from testkit.servers.redis import Redis
from tests.views import (
    Locks,
    check_calls,
    check_commands,
    check_page,
    check_shown,
    listed,
)
from tests.web.serving import served

import leaselock
from leaselock._backends.redis.keys import PREFIX, index_of
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres
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


def test_in_postgres(postgres: Postgres) -> None:
    url = emptied(postgres)
    check(url, in_sql(postgres), ("held", "waited", "readers", "permits"))


def test_in_mariadb(mariadb: MariaDB) -> None:
    url = emptied(mariadb)
    check(url, in_sql(mariadb), ("held", "waited", "readers", "permits"))


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[Any]:
    client = KazooClient(ensemble.hosts)
    client.start()
    yield client
    client.delete(ROOT, recursive=True)
    client.stop()
    client.close()


def test_in_zookeeper(ensemble: Ensemble, kazoo: Any) -> None:
    url = f"zookeeper://{ensemble.hosts}{ROOT}"
    check(url, in_zookeeper(kazoo, ROOT), ("held", "waited", "readers", "permits"))


def test_on_one_master_of_a_redlock(redis: Redis) -> None:
    with Redis() as second, Redis() as third:
        url = ",".join(server.url for server in (redis, second, third))
        check(url, in_redis(redis, "vote"), ("held", "waited"))
