"""Those who wait behind another program, which notifies nobody of its release."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tests.everyday.people import environment
from tests.servers.process import Process, eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.servers.redis import Redis

# What a busy machine may add; without the fix it took up to three seconds.
SLACK = 1.0
PATIENCE = 60.0

WAITERS = """
import os, sys, threading, leaselock
client = leaselock.Client(os.environ["LEASELOCK_URL"])
for _ in range(int(sys.argv[1])):
    threading.Thread(target=lambda: client.lock("a").acquire(), daemon=True).start()
threading.Event().wait()
"""


@contextmanager
def running(folder: Path, text: str, url: str, *words: str) -> Iterator[Process]:
    """A program beside us, which is killed at the end."""
    variables = [f"{k}={v}" for k, v in environment({"LEASELOCK_URL": url}).items()]
    log = folder / f"log{time.monotonic_ns()}"
    process = Process(["env", "-i", *variables, sys.executable, "-c", text, *words], log)
    try:
        yield process
    finally:
        process.kill()


def waiting(url: str, count: int) -> None:
    """Return when so many wait."""
    with leaselock.Client(url) as client:
        eventually(lambda: len(client.lock("a").waiters()) >= count)


def got(lock: leaselock.Lock) -> float:
    """When the lock was granted; it is released at once."""
    with lock:
        return time.monotonic()


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
        assert behind.result(PATIENCE) - released < SLACK
