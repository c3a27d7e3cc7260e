"""Clients of one test that want the same lock, whatever the store."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    import leaselock


class Waiter:
    """A thread that acquires, and says when it had the lock."""

    def __init__(self, client: leaselock.Client, name: str, timeout: float = 30.0) -> None:
        self.lease: leaselock.Lease | None = None
        self.granted = float("inf")
        self.error: BaseException | None = None
        self.lock = client.lock(name)
        self.timeout = timeout
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.lease = self.lock.acquire(self.timeout)
            self.granted = time.monotonic()
        except BaseException as error:
            # It belongs to whoever joins.
            self.error = error

    def join(self) -> leaselock.Lease:
        """The lease that it got."""
        self.thread.join(40.0)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        assert self.lease is not None
        return self.lease


def told(lease: leaselock.Lease) -> Callable[[], float]:
    """When the holder is told of the loss."""
    times: list[float] = []
    lease.on_lost(lambda _: times.append(time.monotonic()))

    def when() -> float:
        return times[0] if times else float("inf")

    return when


def take(client: leaselock.Client, name: str, timeout: float = 20.0) -> leaselock.Lease:
    """Acquire, which must succeed."""
    lease = client.lock(name).acquire(timeout)
    assert lease is not None
    return lease
