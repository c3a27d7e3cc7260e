"""Helpers for tests with several clients of one lock, on any store."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from testkit.servers.process import eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable


class Waiter:
    """A thread that acquires the lock and records when."""

    def __init__(self, client: leaselock.Client, name: str, timeout: float = 60.0) -> None:
        self.lease: leaselock.Lease | None = None
        self.granted = float("inf")
        self.error: BaseException | None = None
        self.lock = client.lock(name)
        self.timeout = timeout
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.lease = self.lock.try_acquire(timeout=self.timeout)
            self.granted = time.monotonic()
        except BaseException as error:
            # It is raised in `join`.
            self.error = error

    def join(self) -> leaselock.Lease:
        """Return the lease."""
        self.thread.join(120.0)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        assert self.lease is not None
        return self.lease


def loss_time(lease: leaselock.Lease) -> Callable[[], float]:
    """Return a function for the time at which the loss was reported, infinite before."""
    times: list[float] = []
    lease.on_lost(lambda _: times.append(time.monotonic()))

    def when() -> float:
        return times[0] if times else float("inf")

    return when


def take(client: leaselock.Client, name: str, timeout: float = 60.0) -> leaselock.Lease:
    """Acquire the lock, which must succeed."""
    return client.lock(name).acquire(timeout=timeout)


def extended(lease: leaselock.Lease) -> bool:
    """Extend the lease; False while the store does not answer."""
    try:
        lease.extend(60.0)
    except leaselock.StoreError:
        return False
    return True


def assert_survived(
    holder: leaselock.Client, rival: leaselock.Client, name: str, restart: Callable[[], object]
) -> None:
    """A restart of the store ends neither a hold nor a wait."""
    lease, waiter = take(holder, name), Waiter(rival, name)
    eventually(lambda: len(holder.lock(name).waiters()) == 1)
    restart()
    eventually(lambda: extended(lease))
    assert waiter.granted == float("inf")
    lease.release()
    assert waiter.join().token > lease.token
