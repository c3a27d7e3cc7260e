"""What an operator says when a lock is broken by force reaches the holder, on real stores."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LONG = 60.0


@pytest.fixture(params=["memory", "sqlite", "redis", "postgres", "etcd"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "memory":
        yield "memory://broken"
    elif request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/locks.db"
    elif request.param == "redis":
        with Redis() as server:
            yield server.url
    elif request.param == "postgres":
        yield request.getfixturevalue("postgres").url
    else:
        yield request.getfixturevalue("etcd").url("broken")


def test_the_holder_is_told(url: str) -> None:
    lost = threading.Event()
    with leaselock.Client(url) as holder, leaselock.Client(url) as operator:
        lease = holder.lock("a", lease=3.0).acquire()
        lease.on_lost(lambda lease: lost.set())
        operator.break_lock("a", token=lease.token, message="the report hangs")
        assert "a" not in [lock.name for lock in operator.locks()]
        assert lost.wait(LONG)
        with pytest.raises(leaselock.LeaseLost, match=r"by force, from .*: the report hangs"):
            lease.ensure()
        with operator.lock("a", timeout=LONG):  # the next hold is none of those that were broken
            pass
