"""Private servers for the contestants that share a lock: Redis, ZooKeeper and PostgreSQL."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from testkit.servers.postgres import Postgres
from testkit.servers.process import HOST
from testkit.servers.redis import Redis
from testkit.servers.zookeeper import Ensemble

import leaselock
from benchmarks.contestants import (
    CLASSES,
    ON_REDIS,
    ON_SQL,
    ON_ZOOKEEPER,
    SHARED_ON_POSTGRES,
    SHARED_ON_REDIS,
    present,
)
from benchmarks.workloads.redis import announce as announce_url
from benchmarks.workloads.zookeeper import announce as announce_hosts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Preparation = dict[str, "Callable[[Path], object]"]
"""For each contestant: how to prepare its folder."""


@contextmanager
def prepared(names: Iterable[str]) -> Iterator[Preparation]:
    """Start one server of each kind; yield the preparation of all contestants that are present."""
    with Redis() as redis, Ensemble(1) as ensemble, Postgres() as postgres:
        with leaselock.Client(postgres.url) as client:
            client.setup()
        hosts = f"{HOST}:{ensemble.servers[0].port}"
        every: Preparation = {
            **dict.fromkeys(CLASSES, Path.exists),
            **dict.fromkeys([*ON_REDIS, *SHARED_ON_REDIS], partial(announce_url, redis.url)),
            **dict.fromkeys(ON_ZOOKEEPER, partial(announce_hosts, hosts)),
            **dict.fromkeys([*ON_SQL, *SHARED_ON_POSTGRES], partial(announce_url, postgres.url)),
        }
        yield {name: every[name] for name in present(names)}
