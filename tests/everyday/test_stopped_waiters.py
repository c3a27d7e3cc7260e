"""Waiters on Redis that are stopped, and the one behind them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.everyday.people import WAITERS, got, running, waiting
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

# What a busy machine may add. Without the rule that is tested, it is three seconds and more.
SLACK = 1.0
TIMEOUT = 60.0
# How long a waiter that was granted the lock has to confirm it.
CONFIRMATION = 3.0
pytestmark = pytest.mark.timing


def test_stopped_waiters_of_one_client_cost_one_confirmation(redis: Redis, tmp_path: Path) -> None:
    url = redis.url
    with (
        leaselock.Client(url) as holder,
        leaselock.Client(url) as last,
        ThreadPoolExecutor(1) as pool,
        running(tmp_path, WAITERS, url, "4") as stopped,
    ):
        held = holder.lock("a").acquire()
        assert held is not None
        waiting(url, 4)
        behind = pool.submit(got, last.lock("a"))
        waiting(url, 5)
        stopped.pause()
        released = time.monotonic()
        held.release()
        served = behind.result(TIMEOUT) - released
    assert served < CONFIRMATION + SLACK * pace()


def test_stopped_waiters_of_two_processes_cost_one_confirmation(
    redis: Redis, tmp_path: Path
) -> None:
    url = redis.url
    with (
        leaselock.Client(url) as holder,
        leaselock.Client(url) as last,
        ThreadPoolExecutor(1) as pool,
        running(tmp_path, WAITERS, url, "1") as one,
        running(tmp_path, WAITERS, url, "1") as other,
    ):
        held = holder.lock("a").acquire()
        assert held is not None
        waiting(url, 2)
        behind = pool.submit(got, last.lock("a"))
        waiting(url, 3)
        one.pause()
        other.pause()
        released = time.monotonic()
        held.release()
        served = behind.result(TIMEOUT) - released
    assert served < CONFIRMATION + SLACK * pace()
