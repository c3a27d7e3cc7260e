"""A worker process of a chaos run: it acquires and releases locks until it is killed.

It records what it observes before and after each call, as `recorder` requires. The run learns
everything from these files.

A cycle is one generator, driven by threads and by tasks. Some cycles last longer than the lease, so
that the lock is renewed; the validity of the lease is recorded throughout.
"""

from __future__ import annotations

import asyncio
import random
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import leaselock
from leaselock.testing.recorder import Recorder
from testkit.chaos.register import Register

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from leaselock.testing.recorder import Attempt

    # Yields the next call; a task awaits its result.
    Cycle = Generator[Callable[[], Any], Any, None]

LOCK, PERMITS, LIMIT = "chaos", "chaos permits", 3
# How often a reader, or a claim of permits, does not wait.
TRIES = 0.3
# Threads or tasks in each worker.
LOOPS = 2
HOLD = 0.001
STEP = 0.02
MODES = ("shared", "shared", "exclusive", "permits")
LONG_CYCLES = 0.002


class Config(NamedTuple):
    """The arguments of a worker."""

    url: str
    folder: str
    lease: float
    role: str
    locks: int


class Loop:
    """The work of one thread or task."""

    def __init__(
        self, config: Config, client: leaselock.Client | leaselock.AsyncClient, task: int | None
    ) -> None:
        self.config = config
        self.client = client
        self.task = task
        self.pause: Callable[[float], Any] = time.sleep if task is None else asyncio.sleep
        # A recorder for each thread: of two threads that start one recorder at once, one removes
        # its files again, possibly while the run reads them.
        self.recorder = Recorder(config.folder)
        shared = Path(config.folder).parent
        self.modes = MODES if has_permits(client) else MODES[:-1]
        self.registers = [Register(shared / f"register {n}") for n in range(config.locks)]

    def cycle(self) -> Cycle:
        """Acquire a lock, hold it, write, release."""
        # Lock 0 is chosen most often, so that it is contended.
        number = random.choice((0, *random.choices(range(self.config.locks), k=3)))
        name = f"{LOCK} {number}"
        mode = random.choice(self.modes) if self.config.role == "share" else "exclusive"
        acquire: Callable[[], Any]
        if mode == "exclusive":
            attempt = self.recorder.acquiring(name, task=self.task)
            acquire = self.client.lock(name, lease=self.config.lease).acquire
        else:
            attempt, acquire = self.share(name, mode)
        try:
            lease = yield acquire
        except leaselock.StoreError:
            attempt.unknown()
            yield lambda: self.pause(STEP)
            return
        if lease is None:
            attempt.refused()
            return
        record_validity(attempt, lease)
        attempt.granted(lease.token)
        yield from self.hold(attempt, lease)
        if mode == "exclusive":
            self.registers[number].write(attempt, lease.token)
        attempt.releasing()
        yield from release(attempt, lease)

    def share(self, name: str, mode: str) -> tuple[Attempt, Callable[[], Any]]:
        """Prepare to read, or to take permits; at times without waiting."""
        timeout = 0.0 if random.random() < TRIES else None
        lease = self.config.lease
        if mode == "permits":
            permits = random.choice((1, 1, 2))
            semaphore = self.client.semaphore(PERMITS, permits=LIMIT, lease=lease)
            attempt = self.recorder.acquiring(
                PERMITS, timeout=timeout, task=self.task, permits=permits, limit=LIMIT
            )
            return attempt, partial(semaphore.try_acquire, permits, timeout=timeout)
        read = self.client.rwlock(name, lease=lease).read
        attempt = self.recorder.acquiring(name, timeout=timeout, task=self.task, mode=mode)
        return attempt, partial(read.try_acquire, timeout=timeout)

    def hold(self, attempt: Attempt, lease: Any) -> Cycle:
        """Hold briefly, or for longer than the lease; in the role "hold", until killed."""
        if self.config.role == "hold":
            print("holding", flush=True)
            while True:
                yield lambda: self.pause(3600.0)
        yield lambda: self.pause(HOLD)
        if random.random() < LONG_CYCLES:
            end = time.monotonic() + self.config.lease * 1.5
            while time.monotonic() < end and record_validity(attempt, lease):
                yield lambda: self.pause(STEP)


def has_permits(client: leaselock.Client | leaselock.AsyncClient) -> bool:
    """Whether the store has semaphores."""
    try:
        client.semaphore(PERMITS, permits=LIMIT)
    except ValueError:
        return False
    return True


def record_validity(attempt: Attempt, lease: Any) -> bool:
    """Record until when the lease is valid; return whether it is valid now."""
    # Read the clock first: the recorded time must not be too late.
    now = time.monotonic_ns()
    left = lease.remaining
    attempt.valid_until(now + round(left * 1e9))
    return bool(left > 0.0)


def release(attempt: Attempt, lease: Any) -> Cycle:
    """Release the lease and record the outcome."""
    try:
        yield lease.release
    except leaselock.LeaseLost as error:
        if isinstance(error.__cause__, leaselock.StoreError):
            attempt.unknown()
        else:
            attempt.release_lost()
    else:
        attempt.released()


def step(cycle: Cycle, result: Any, error: Exception | None) -> Callable[[], Any] | None:
    """Return the next call of a cycle; None at its end."""
    try:
        return cycle.send(result) if error is None else cycle.throw(error)
    except StopIteration:
        return None


def run_thread(loop: Loop) -> None:
    """Run one cycle after the other."""
    while True:
        cycle = loop.cycle()
        call = step(cycle, None, None)
        while call is not None:
            result, error = None, None
            try:
                result = call()
            except leaselock.LeaselockError as raised:
                error = raised
            call = step(cycle, result, error)


async def run_task(loop: Loop) -> None:
    """Run one cycle after the other, awaiting each call."""
    while True:
        cycle = loop.cycle()
        call = step(cycle, None, None)
        while call is not None:
            result, error = None, None
            try:
                result = await call()
            except leaselock.LeaselockError as raised:
                error = raised
            call = step(cycle, result, error)


def run_threads(config: Config) -> None:
    """Run several threads of one client."""
    client = leaselock.Client(config.url)
    loops = [Loop(config, client, None) for _ in range(LOOPS)]
    threads = [threading.Thread(target=run_thread, args=(loop,)) for loop in loops]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


async def run_tasks(config: Config) -> None:
    """Run several tasks of one client."""
    client = leaselock.AsyncClient(config.url)
    await asyncio.gather(*(run_task(Loop(config, client, n)) for n in range(1, LOOPS + 1)))


def main(kind: str, url: str, folder: str, lease: str, role: str, locks: str) -> None:
    """Run until killed."""
    config = Config(url, folder, float(lease), role, int(locks))
    if kind == "asyncio":
        asyncio.run(run_tasks(config))
    else:
        run_threads(config)


if __name__ == "__main__":
    main(*sys.argv[1:])
