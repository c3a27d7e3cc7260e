"""Threads: one lock, several ways to take it. Run it: python examples/threads.py"""

from __future__ import annotations

import threading

import leaselock

balance = 0


def deposit(client: leaselock.Client) -> None:
    """Wait for the lock, then change what it guards."""
    global balance
    with client.lock("account:7"):
        balance += 10


def main() -> None:
    with leaselock.Client() as client:  # $LEASELOCK_URL, or else an embedded file: no server needed
        threads = [threading.Thread(target=deposit, args=(client,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"five deposits: {balance}")

        lease = client.lock("account:7").acquire(timeout=2.5)  # None if the time passes
        if lease is not None:
            print(f"mine for the next {lease.remaining:.0f} seconds, and renewed until released")
            lease.release()


if __name__ == "__main__":
    main()
