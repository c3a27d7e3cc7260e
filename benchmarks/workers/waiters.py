"""A process full of waiting tasks: `python -m benchmarks.workers.waiters URL TASKS KIND`.

It reports "requested" when all tasks have requested their lock. Between the next two lines of its
input it measures its own memory and CPU time. At the end it reports when the first tasks were
granted the lock.
"""

from __future__ import annotations

import asyncio
import sys
import time

import leaselock
from benchmarks.workers.process import memory, report

LOCK = "held"
SHARED_LOCK, SEPARATE_LOCKS = "shared", "separate"
# How many grants are recorded before the process ends.
RECORDED = 50


async def line_received() -> None:
    """Wait for a line of input."""
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)


class GrantRecorder:
    """Records the times of the first grants; the task with the last of them keeps the lock."""

    def __init__(self, tasks: int) -> None:
        self.grants: list[int] = []
        self.complete = asyncio.Event()
        self.most = min(RECORDED, tasks)

    async def wait(self, lock: leaselock.AsyncLock) -> None:
        """Wait for the lock, record the grant, and release."""
        async with lock:
            self.grants.append(time.monotonic_ns())
            if len(self.grants) == self.most:
                self.complete.set()
                await asyncio.Event().wait()


async def main(url: str, tasks: str, kind: str) -> None:
    """Wait, report the cost of waiting, and then the grants."""
    client, recorder = leaselock.AsyncClient(url), GrantRecorder(int(tasks))
    bare = memory("VmRSS")
    names = [name_of(number, kind) for number in range(int(tasks))]
    # The event loop has only weak references to its tasks.
    waiting = [asyncio.create_task(recorder.wait(client.lock(name))) for name in names]
    await asyncio.sleep(0)  # lets each task start
    report(f"requested: {len(waiting)}")
    await line_received()
    began, busy = time.monotonic(), time.process_time()
    await line_received()
    busy = (time.process_time() - busy) / (time.monotonic() - began)
    report({"bare": bare, "memory": memory("VmRSS"), "busy": busy})
    await recorder.complete.wait()
    report(recorder.grants)


def name_of(number: int, kind: str) -> str:
    """Return the name of the lock of a task: one for all, or one for each."""
    return f"{LOCK} {number if kind == SEPARATE_LOCKS else 0}"


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
