"""One Python process that contends, in a command's words: KIND URL NAME TURNS HOLD FILE.

KIND is threads, asyncio or redis-py; HOLD is in milliseconds. As on the Java side, the file appears
before the first acquire; an interval lies inside the hold, and is written as "granted released
token".
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

LEASE = 30.0


def recorded(count: int, name: str) -> Iterator[list[str]]:
    """The turns of one contender; the caller fills each turn in, and the turns are written."""
    Path(name).touch()
    turns: list[list[str]] = [[] for _ in range(count)]
    yield from turns
    Path(name).write_text("".join(f"{' '.join(turn)}\n" for turn in turns))


def hold_for(turn: list[str], token: int, hold: float) -> None:
    """Hold, and write it down."""
    granted = time.monotonic_ns()
    time.sleep(hold)
    turn += map(str, (granted, time.monotonic_ns(), token))


def in_threads(url: str, lock_name: str, count: int, hold: float, file: str) -> None:
    """By leaselock."""
    with leaselock.Client(url) as client:
        lock = client.lock(lock_name, lease=LEASE)
        for turn in recorded(count, file):
            with lock as lease:
                hold_for(turn, lease.token, hold)


async def in_asyncio(url: str, lock_name: str, count: int, hold: float, file: str) -> None:
    """By leaselock's other half."""
    async with leaselock.AsyncClient(url) as client:
        lock = client.lock(lock_name, lease=LEASE)
        for turn in recorded(count, file):
            async with lock as lease:
                hold_for(turn, lease.token, hold)


def by_redis_py(url: str, lock_name: str, count: int, hold: float, file: str) -> None:
    """By redis-py's own lock."""
    with redis.Redis.from_url(url) as client:
        lock = client.lock(f"lock:{lock_name}", timeout=LEASE, sleep=0.005)
        for turn in recorded(count, file):
            with lock:
                hold_for(turn, 0, hold)


def main(kind: str, url: str, name: str, count: str, hold: str, file: str) -> None:
    """Contend."""
    job = (url, name, int(count), float(hold) / 1000, file)
    if kind == "asyncio":
        asyncio.run(in_asyncio(*job))
    elif kind == "threads":
        in_threads(*job)
    else:
        by_redis_py(*job)


if __name__ == "__main__":
    main(*sys.argv[1:])
