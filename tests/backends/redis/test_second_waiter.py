"""Waiters behind another program's hold, whose release sends no notification."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from tests.pace import pace
from tests.people import WAITERS, got, running, waiting

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

# What a busy machine may add; without the fix it took up to three seconds.
SLACK = 1.0
TIMEOUT = 60.0


@pytest.mark.timing
def test_second_waiter_behind_another_program_takes_the_place_of_the_first(
    redis: Redis, tmp_path: Path
) -> None:
    url = f"{redis.url}?protocol=string"
    with leaselock.Client(url) as client, client.lock("a"):
        (key,) = (k for k in redis.ask("KEYS", "*a") if redis.ask("TYPE", k) == "string")
    redis.ask("SET", key, "another program", "PX", 600_000)
    with leaselock.Client(url) as second, ThreadPoolExecutor(1) as pool:
        with running(tmp_path, WAITERS, url, "1") as first:
            waiting(url, 1)
            behind = pool.submit(got, second.lock("a"))
            waiting(url, 2)
            first.kill()
        redis.ask("DEL", key)
        released = time.monotonic()
        assert behind.result(TIMEOUT) - released < SLACK * pace()
