"""Hold many locks for which many tasks wait: `python -m tests.web.many_waiters URL`."""

from __future__ import annotations

import asyncio
import sys

import leaselock

LOCKS = 1_000
WAITERS_OF_EACH = 5
# Longer than any measurement: nothing is renewed, granted or released meanwhile.
LEASE = 3600.0


async def main(url: str) -> None:
    """Hold and wait until stdin ends."""
    async with leaselock.AsyncClient(url) as holder, leaselock.AsyncClient(url) as waiter:
        names = [f"family-{i % 50}:{i}" for i in range(LOCKS)]
        await asyncio.gather(*(holder.lock(name, lease=LEASE).acquire() for name in names))
        busy = asyncio.Semaphore(0)
        waiter.on_event(lambda event: busy.release() if event.kind == "busy" else None)
        waits = [
            asyncio.create_task(waiter.lock(name).acquire())
            for _ in range(WAITERS_OF_EACH)
            for name in names
        ]
        for _ in waits:
            await busy.acquire()
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
