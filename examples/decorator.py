"""A lock as a decorator, and what a caller who cannot wait is told.

Run it: python examples/decorator.py
"""

from __future__ import annotations

import threading

import leaselock

client = leaselock.Client(label="nightly report")
begun, go_on = threading.Event(), threading.Event()


@client.lock("report", timeout=0.2)
def write_report(who: str) -> str:
    """Runs in one thread, of one process, of this machine at a time."""
    begun.set()
    go_on.wait()
    return f"written by {who}"


def main() -> None:
    first = threading.Thread(target=lambda: print(write_report("the first")), name="first")
    first.start()
    begun.wait()
    try:
        write_report("the second")
    except leaselock.AcquireTimeout as busy:
        print(f"not written twice: {busy}")
    go_on.set()
    first.join()
    client.close()


if __name__ == "__main__":
    main()
