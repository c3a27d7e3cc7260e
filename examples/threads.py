"""Threads: one lock, several ways to acquire it. Run it: python examples/threads.py"""

from __future__ import annotations

import threading

import leaselock

balance = 0


def deposit(client: leaselock.Client) -> None:
    """Wait for the lock, then change the balance."""
    global balance
    with client.lock("account:7"):
        balance += 10


def main() -> None:
    with leaselock.Client() as client:  # $LEASELOCK_URL, otherwise an SQLite file
        threads = [threading.Thread(target=deposit, args=(client,)) for _ in range(5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"five deposits: {balance}")

        lease = client.lock("account:7").try_acquire(timeout=2.5)  # None after 2.5 s
        if lease is not None:
            print(f"held: valid for {lease.remaining:.0f} seconds, renewed until released")
            lease.release()


if __name__ == "__main__":
    main()
