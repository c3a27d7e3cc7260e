"""`gc` of more names than one deadline suffices for, on real servers.

The clock of the client goes forward with each call of the store, as if each took long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from testkit.servers.databases import emptied
from testkit.servers.ensembles import fresh
from testkit.servers.redis import Redis

import leaselock
from leaselock._api.connect import connect
from leaselock._backends.redis.keys import COUNTER
from leaselock._backends.sqlite.garbage import MOST_WRITTEN
from leaselock._core.client.client_core import ClientCore
from leaselock._core.contract.effects import FOREVER, Call, Effect, Sleep
from leaselock._drivers import system_env
from leaselock._drivers.threads import Threads

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.mariadb import MariaDB
    from testkit.servers.postgres import Postgres
    from testkit.servers.zookeeper import Ensemble

NAMES = 300
# Seconds. What the calls really take does not matter beside it.
OP_TIMEOUT = 1000.0


class SlowCalls(Threads):
    """A driver for whose clock each call takes a part of OP_TIMEOUT."""

    def __init__(self, url: str, part: float) -> None:
        self.seconds = part * OP_TIMEOUT
        self.calls = 0
        opened = connect(url, self.now)
        super().__init__(opened.parts)
        self.core = ClientCore(
            self, opened.backend, protocol=opened.protocol, label=None, op_timeout=OP_TIMEOUT
        )
        self.serve(self.core)

    def now(self) -> float:
        """The time with all calls so far."""
        return system_env.now() + self.calls * self.seconds

    def _perform(self, effect: Effect[Any]) -> object:
        if isinstance(effect, Call) and effect.until < FOREVER:
            assert self.now() < effect.until, "this call began after its deadline"
            try:
                return super()._perform(effect)
            finally:
                self.calls += 1
        if isinstance(effect, Sleep):  # the thread sleeps by the system's clock
            effect = Sleep(effect.until - self.calls * self.seconds)
        return super()._perform(effect)


def collected(url: str, part: float) -> tuple[int, int]:
    """How many records were removed, with how many calls of the store."""
    driver = SlowCalls(url, part)
    try:
        return driver.run(driver.core.gc()), driver.calls
    finally:
        driver.end(driver.core.close())


def use(url: str) -> None:
    """Acquire and release that many locks."""
    with leaselock.Client(url) as client:
        for number in range(NAMES):
            client.lock(f"name {number}").acquire().release()


def test_zookeeper(ensemble: Ensemble) -> None:
    url = fresh(ensemble)
    use(url)
    removed, calls = collected(url, 0.3)
    assert removed == NAMES
    assert calls > 9
    assert collected(url, 0.3)[0] == 0


def test_redis() -> None:
    with Redis() as redis:
        use(f"{redis.url}?token_ttl=0")
        removed, calls = collected(f"{redis.url}?token_ttl=0.001s", 0.3)
        assert not redis.ask("KEYS", f"{COUNTER}*")
    # Names in the index of locks count, too.
    assert removed >= NAMES
    assert calls > NAMES


def test_sqlite(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db?token_ttl=0.001s"
    use(url)
    removed, calls = collected(url, 0.9)
    # Opening the file has removed some already.
    assert removed == NAMES - MOST_WRITTEN
    assert calls > 3


def test_databases(server: Postgres | MariaDB) -> None:
    """Connecting anew for each step takes several calls."""
    url = emptied(server)
    use(url)
    removed, calls = collected(f"{url}?token_ttl=0.001s", 0.1)
    assert removed >= NAMES
    assert calls > 10
