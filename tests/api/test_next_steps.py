"""Messages say what to do next."""

from __future__ import annotations

import threading

import pytest

import leaselock


def test_what_was_acquired_elsewhere_is_released_by_its_lease() -> None:
    """In another cell of a notebook, in another request, in `to_thread`."""
    with leaselock.Client("memory://") as client:
        lock = client.lock("a")
        leases: list[leaselock.Lease] = []
        thread = threading.Thread(target=lambda: leases.append(lock.acquire()))
        thread.start()
        thread.join()
        with pytest.raises(leaselock.NotHeld, match=r'keep the lease .* owner="lock"'):
            lock.release()
        leases[0].release()


def test_a_timeout_and_a_loss_say_what_to_do() -> None:
    with leaselock.Client("memory://next-steps") as client:
        with (
            leaselock.Client("memory://next-steps") as other,
            other.lock("a"),
            pytest.raises(leaselock.AcquireTimeout, match=r"wait longer, or .*show 'a'"),
        ):
            client.lock("a").acquire(timeout=0)
        lease = client.lock("a").acquire()
        client.break_lock("a")
        with pytest.raises(leaselock.LeaseLost, match="undo or repeat the work"):
            lease.release()
