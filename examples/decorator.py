"""A lock as a decorator, and the error when the wait times out.

Run it: python examples/decorator.py
"""

from __future__ import annotations

import threading

import leaselock

client = leaselock.Client(label="nightly report")
started, finish = threading.Event(), threading.Event()


@client.lock("report", timeout=0.2)
def write_report(author: str) -> str:
    """Run in at most one thread of one process on this machine at a time."""
    started.set()
    finish.wait()
    return f"written by {author}"


def main() -> None:
    first = threading.Thread(target=lambda: print(write_report("the first")), name="first")
    first.start()
    started.wait()
    try:
        write_report("the second")
    except leaselock.AcquireTimeout as busy:
        print(f"not written twice: {busy}")
    finish.set()
    first.join()
    client.close()


if __name__ == "__main__":
    main()
