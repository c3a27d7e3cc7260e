"""A process full of tasks that wait for one lock: `python -m benchmarks.waiters URL TASKS KIND`.

Law: what a process says of its memory and its time, it says of itself. It says "asking" when all
have asked, what it costs when told to look twice, and when the first of them was granted.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

import leaselock
from benchmarks.crew import say

LOCK = "held"
TOGETHER, SCATTERED = "together", "scattered"
# How many of them pass the lock on before the rest is sent home.
PASSING = 50


def memory() -> int:
    """Bytes of this process that are in memory now."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1024


async def told() -> None:
    """Wait for a line."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


class Relay:
    """The tasks pass the lock on until enough of them had it; the last one keeps it."""

    def __init__(self, tasks: int) -> None:
        self.grants: list[int] = []
        self.enough = asyncio.Event()
        self.most = min(PASSING, tasks)

    async def wait(self, lock: leaselock.AsyncLock) -> None:
        """Wait, note when it came, and pass it on."""
        async with lock:
            self.grants.append(time.monotonic_ns())
            if len(self.grants) == self.most:
                self.enough.set()
                await asyncio.Event().wait()


async def main(url: str, tasks: str, kind: str) -> None:
    """Wait, say what waiting costs, and then how it went on."""
    client, relay = leaselock.AsyncClient(url), Relay(int(tasks))
    bare = memory()
    names = [name_of(number, kind) for number in range(int(tasks))]
    # The event loop knows its tasks weakly.
    waiting = [asyncio.create_task(relay.wait(client.lock(name))) for name in names]
    await asyncio.sleep(0)  # until each has begun
    say(f"asking: {len(waiting)}")
    await told()
    began, busy = time.monotonic(), time.process_time()
    await told()
    busy = (time.process_time() - busy) / (time.monotonic() - began)
    say({"bare": bare, "memory": memory(), "busy": busy})
    await relay.enough.wait()
    say(relay.grants)


def name_of(number: int, kind: str) -> str:
    """One lock for all, or a lock for each."""
    return f"{LOCK} {number if kind == SCATTERED else 0}"


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
