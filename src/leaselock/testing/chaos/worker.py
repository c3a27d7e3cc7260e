"""One of the processes that a storm kills and freezes: it takes locks again and again.

Law: it records what it was told, before and after each call as `history` demands, and nothing else
is kept: the storm learns everything from the files. It does not end by itself.

A turn is one text, stepped by threads and by tasks. Now and then a turn lasts longer than the
lease, so that renewals count, and what the holder believes is recorded all along.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import leaselock
from leaselock.testing.chaos.register import Register
from leaselock.testing.history import Recorder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from leaselock.testing.history import Attempt

    # What to do next; a task awaits what comes of it.
    Turn = Generator[Callable[[], Any], Any, None]

LOCK = "storm"
HOLDERS = 2
HOLD = 0.001
STEP = 0.02
LONG_TURNS = 0.002


class Job(NamedTuple):
    """What to do, and where."""

    url: str
    folder: str
    lease: float
    role: str
    locks: int


class Holder:
    """What one thread or task does."""

    def __init__(
        self, job: Job, client: leaselock.Client | leaselock.AsyncClient, task: int | None
    ) -> None:
        self.job = job
        self.client = client
        self.task = task
        self.pause: Callable[[float], Any] = time.sleep if task is None else asyncio.sleep
        # One for each thread: of two threads that begin a recorder at once, one takes its files
        # away again, perhaps while the storm reads them.
        self.recorder = Recorder(job.folder)
        shared = Path(job.folder).parent
        self.registers = [Register(shared / f"register {n}") for n in range(job.locks)]

    def turn(self) -> Turn:
        """Take one, hold it, write, give it back."""
        # Everybody wants the first most often; the others go on when that is not to be had.
        number = random.choice((0, *random.choices(range(self.job.locks), k=3)))
        name = f"{LOCK} {number}"
        lock = self.client.lock(name, lease=self.job.lease)
        attempt = self.recorder.ask(name, task=self.task)
        try:
            lease = yield lock.acquire
        except leaselock.StoreError:
            attempt.unknown()
            yield lambda: self.pause(STEP)
            return
        believed(attempt, lease)
        attempt.granted(lease.token)
        yield from self.hold(attempt, lease)
        self.registers[number].write(attempt, lease.token)
        attempt.releasing()
        yield from giving_back(attempt, lease)

    def hold(self, attempt: Attempt, lease: Any) -> Turn:
        """Hold it for a moment, or beyond its lease; or for ever, to be killed with it."""
        if self.job.role == "hold":
            print("holding", flush=True)
            while True:
                yield lambda: self.pause(3600.0)
        yield lambda: self.pause(HOLD)
        if random.random() < LONG_TURNS:
            end = time.monotonic() + self.job.lease * 1.5
            while time.monotonic() < end and believed(attempt, lease):
                yield lambda: self.pause(STEP)


def believed(attempt: Attempt, lease: Any) -> bool:
    """Whether the lease still counts, which is recorded."""
    # The clock first: the sum must not be later than the truth.
    now = time.monotonic_ns()
    left = lease.remaining
    attempt.valid_until(now + round(left * 1e9))
    return bool(left > 0.0)


def giving_back(attempt: Attempt, lease: Any) -> Turn:
    """Release it, and record what came of it."""
    try:
        yield lease.release
    except leaselock.LeaseLost:
        attempt.release_lost()
    except leaselock.StoreError:
        attempt.unknown()
    else:
        attempt.released()


def step(turn: Turn, answer: Any, error: Exception | None) -> Callable[[], Any] | None:
    """What a turn does next; None at its end."""
    try:
        return turn.send(answer) if error is None else turn.throw(error)
    except StopIteration:
        return None


def in_thread(holder: Holder) -> None:
    """One turn after the other."""
    while True:
        turn = holder.turn()
        deed = step(turn, None, None)
        while deed is not None:
            answer, error = None, None
            try:
                answer = deed()
            except leaselock.LeaselockError as told:
                error = told
            deed = step(turn, answer, error)


async def in_task(holder: Holder) -> None:
    """The same, each deed awaited."""
    while True:
        turn = holder.turn()
        deed = step(turn, None, None)
        while deed is not None:
            answer, error = None, None
            try:
                answer = await deed()
            except leaselock.LeaselockError as told:
                error = told
            deed = step(turn, answer, error)


def in_threads(job: Job) -> None:
    """Several threads of one client."""
    client = leaselock.Client(job.url)
    holders = [Holder(job, client, None) for _ in range(HOLDERS)]
    threads = [threading.Thread(target=in_thread, args=(holder,)) for holder in holders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def in_asyncio(job: Job) -> None:
    """Several tasks of one client."""
    client = leaselock.AsyncClient(job.url)
    await asyncio.gather(*(in_task(Holder(job, client, n)) for n in range(1, HOLDERS + 1)))


def main(colour: str, url: str, folder: str, lease: str, role: str, locks: str) -> None:
    """Go on until killed."""
    job = Job(url, folder, float(lease), role, int(locks))
    if colour == "asyncio":
        asyncio.run(in_asyncio(job))
    else:
        in_threads(job)


if __name__ == "__main__":
    main(*sys.argv[1:])
