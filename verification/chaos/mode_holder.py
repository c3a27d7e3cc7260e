"""A process that holds a side of a read/write lock or permits, or waits for them, until killed."""

from __future__ import annotations

import sys

import leaselock


def main(url: str, kind: str, lease: float) -> None:
    """Print a line when it asks, and another when it holds."""
    client = leaselock.Client(url)
    print("asking", flush=True)
    if kind == "permits":
        client.semaphore("s", permits=3, lease=lease).acquire(2)
    else:
        shared = client.rwlock("a", lease=lease)
        (shared.read if kind == "read" else shared.write).acquire()
    print("holding", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]))
