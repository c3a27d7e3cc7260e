"""One of the processes that the crash test kills and freezes: it takes one lock again and again.

Law: it records what it was told, before and after each call as `history` demands, and nothing else
is kept: the test learns everything from the files. It does not end by itself.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.crash.register import Register

import holdfast
from holdfast.testing.history import Recorder

if TYPE_CHECKING:
    from holdfast.testing.history import Attempt

LOCK = "crash"
HOLD = 0.004
HOLDERS = 2


class Job(NamedTuple):
    """What to do, and where."""

    url: str
    folder: str
    lease: float
    role: str


def register_of(job: Job) -> Register:
    """What all processes of one test write to."""
    return Register(Path(job.folder).parent / "register")


def granted(attempt: Attempt, lease: holdfast.Lease | holdfast.AsyncLease) -> None:
    # The clock first: the sum must not be later than the truth.
    now = time.monotonic_ns()
    attempt.granted(lease.token, valid_until=now + round(lease.remaining * 1e9))


def work(job: Job, lock: holdfast.Lock, recorder: Recorder, register: Register) -> None:
    """Take it, hold it, write, give it back."""
    attempt = recorder.ask(LOCK)
    try:
        lease = lock.acquire()
    except holdfast.StoreError:
        attempt.unknown()
        return
    assert lease is not None
    granted(attempt, lease)
    if job.role == "hold":
        print("holding", flush=True)
        threading.Event().wait()
    time.sleep(HOLD)
    register.write(attempt, lease.token)
    attempt.releasing()
    try:
        lease.release()
    except holdfast.LeaseLost:
        attempt.release_lost()
    except holdfast.StoreError:
        attempt.unknown()
    else:
        attempt.released()


async def work_async(
    job: Job, lock: holdfast.AsyncLock, recorder: Recorder, register: Register, task: int
) -> None:
    """The same in a task."""
    attempt = recorder.ask(LOCK, task=task)
    try:
        lease = await lock.acquire()
    except holdfast.StoreError:
        attempt.unknown()
        return
    assert lease is not None
    granted(attempt, lease)
    if job.role == "hold":
        print("holding", flush=True)
        await asyncio.Event().wait()
    await asyncio.sleep(HOLD)
    register.write(attempt, lease.token)
    attempt.releasing()
    try:
        await lease.release()
    except holdfast.LeaseLost:
        attempt.release_lost()
    except holdfast.StoreError:
        attempt.unknown()
    else:
        attempt.released()


def in_threads(job: Job) -> None:
    """Several threads of one client."""
    client = holdfast.Client(job.url)

    def forever() -> None:
        # One for each thread: of two threads that begin a recorder at once, one takes its files
        # away again, perhaps while the test reads them.
        recorder = Recorder(job.folder)
        register = register_of(job)
        lock = client.lock(LOCK, lease=job.lease)
        while True:
            work(job, lock, recorder, register)

    threads = [threading.Thread(target=forever) for _ in range(HOLDERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def in_asyncio(job: Job) -> None:
    """Several tasks of one client."""
    client = holdfast.AsyncClient(job.url)
    recorder, register = Recorder(job.folder), register_of(job)

    async def forever(task: int) -> None:
        lock = client.lock(LOCK, lease=job.lease)
        while True:
            await work_async(job, lock, recorder, register, task)

    await asyncio.gather(*(forever(task) for task in range(1, HOLDERS + 1)))


def main(colour: str, url: str, folder: str, lease: str, role: str) -> None:
    job = Job(url, folder, float(lease), role)
    if colour == "asyncio":
        asyncio.run(in_asyncio(job))
    else:
        in_threads(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
