"""A process that holds many leases: `python -m benchmarks.leases URL COUNT LEASE`.

It says when it has them; told so, it says each time what keeping them has cost since, and how much
time the one that was closest to its end had left. Law: it looks at them all, many times a second.
"""

from __future__ import annotations

import asyncio
import sys
import time

import leaselock
from benchmarks.crew import say

Leases = list[leaselock.AsyncLease]
AT_ONCE = 1000
LOOK = 0.25


async def taken(client: leaselock.AsyncClient, count: int, lease: float) -> Leases:
    """All of them, many at a time."""
    locks = [client.lock(f"kept {number}", lease=lease) for number in range(count)]
    leases: Leases = []
    for start in range(0, count, AT_ONCE):
        some = await asyncio.gather(*(lock.acquire() for lock in locks[start : start + AT_ONCE]))
        leases += [one for one in some if one is not None]
    return leases


async def slack(leases: Leases, stop: asyncio.Future[str]) -> tuple[float, float]:
    """The shortest time that any of them has left, and the processor's time that looking took."""
    shortest, cost = leases[0].remaining, 0.0
    while not stop.done():
        cpu = time.thread_time()
        shortest = min(shortest, *(lease.remaining for lease in leases))
        cost += time.thread_time() - cpu
        await asyncio.wait([stop], timeout=LOOK)
    return shortest, cost


async def main(url: str, count: str, lease: str) -> None:
    """Take them, and watch them being kept."""
    loop = asyncio.get_running_loop()
    async with leaselock.AsyncClient(url, op_timeout=30.0) as client:
        began = time.monotonic()
        leases = await taken(client, int(count), float(lease))
        say(time.monotonic() - began)
        while True:
            await loop.run_in_executor(None, sys.stdin.readline)
            began, cpu = time.monotonic(), time.process_time()
            shortest, looking = await slack(leases, loop.run_in_executor(None, sys.stdin.readline))
            busy = (time.process_time() - cpu - looking) / (time.monotonic() - began)
            lost = sum(one.lost for one in leases)
            say({"busy": busy, "slack": shortest, "lost": lost})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
