"""A process that acquires a lock and releases it on request; arguments: COLOUR URL NAME LEASE.

It prints the lines "asking", "granted NANOSECONDS TOKEN" and "released", with monotonic times. A
line on stdin makes it release the lock.
"""

from __future__ import annotations

import asyncio
import sys
import time

import leaselock


def say(*words: object) -> None:
    """Send a line to the test."""
    print(*words, flush=True)


def in_threads(url: str, name: str, lease: float) -> None:
    """Hold the lock once, in a thread."""
    with leaselock.Client(url) as client:
        say("asking")
        with client.lock(name, lease=lease) as grant:
            say("granted", time.monotonic_ns(), grant.token)
            sys.stdin.readline()
        say("released")


async def in_asyncio(url: str, name: str, lease: float) -> None:
    """Hold the lock once, in a task."""
    async with leaselock.AsyncClient(url) as client:
        say("asking")
        async with client.lock(name, lease=lease) as grant:
            say("granted", time.monotonic_ns(), grant.token)
            await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        say("released")


if __name__ == "__main__":
    colour, url, name, lease = sys.argv[1:]
    if colour == "asyncio":
        asyncio.run(in_asyncio(url, name, float(lease)))
    else:
        in_threads(url, name, float(lease))
