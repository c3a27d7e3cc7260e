"""A process that holds many leases: `python -m benchmarks.workers.leases URL COUNT LEASE`.

It reports when it has acquired them. Between two lines of its input it measures the CPU time of
renewal, and the shortest remaining time of all leases, which it checks many times a second.
"""

from __future__ import annotations

import asyncio
import sys
import time

import leaselock
from benchmarks.workers.process import report

Leases = list[leaselock.AsyncLease]
AT_ONCE = 1000
CHECK_INTERVAL = 0.25


async def acquire_all(client: leaselock.AsyncClient, count: int, lease: float) -> Leases:
    """Acquire all locks, AT_ONCE at a time."""
    locks = [client.lock(f"kept {number}", lease=lease) for number in range(count)]
    leases: Leases = []
    for start in range(0, count, AT_ONCE):
        leases += await asyncio.gather(*(lock.acquire() for lock in locks[start : start + AT_ONCE]))
    return leases


async def min_remaining(leases: Leases, stop: asyncio.Future[str]) -> tuple[float, float]:
    """Return the shortest remaining time of any lease, and the CPU time spent on checking."""
    shortest, cost = leases[0].remaining, 0.0
    while not stop.done():
        cpu = time.thread_time()
        shortest = min(shortest, *(lease.remaining for lease in leases))
        cost += time.thread_time() - cpu
        await asyncio.wait([stop], timeout=CHECK_INTERVAL)
    return shortest, cost


async def main(url: str, count: str, lease: str) -> None:
    """Acquire the leases and measure their renewal."""
    loop = asyncio.get_running_loop()
    async with leaselock.AsyncClient(url, op_timeout=30.0) as client:
        began = time.monotonic()
        leases = await acquire_all(client, int(count), float(lease))
        report(time.monotonic() - began)
        while True:
            await loop.run_in_executor(None, sys.stdin.readline)
            began, cpu = time.monotonic(), time.process_time()
            stop = loop.run_in_executor(None, sys.stdin.readline)
            shortest, checking = await min_remaining(leases, stop)
            busy = (time.process_time() - cpu - checking) / (time.monotonic() - began)
            lost = sum(one.lost for one in leases)
            report({"busy": busy, "slack": shortest, "lost": lost})


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
