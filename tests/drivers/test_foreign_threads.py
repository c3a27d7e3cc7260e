"""Threads that another library than `threading` has started."""

from __future__ import annotations

import _thread
import threading

import leaselock


def test_no_object_is_left_for_a_foreign_thread() -> None:
    """`threading.current_thread` makes one for each, which stays in its table."""
    done, names = threading.Semaphore(0), list[str]()

    def work(number: int) -> None:
        with client.lock(f"{number}"):
            holder = client.lock(f"{number}").holder()
            names.append(holder.thread if holder else "")
        done.release()

    with leaselock.Client("memory://") as client:
        with client.lock("begin"):
            before = threading.enumerate()
        for number in range(20):
            _thread.start_new_thread(work, (number,))
            assert done.acquire(timeout=60)
        left = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread.name for thread in left if thread.name.startswith("Dummy")] == []
    assert all(name.startswith("thread ") for name in names)
