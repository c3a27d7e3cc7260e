"""One process of a workload about leases that stay in a client: ``URL WHAT PASSES SECONDS``.

*crowd*: four threads take one lock as often as they can; it says how often each did, and the
longest wait. *keep*: for each line that it reads it takes a sticky lock of that name, gives it
back, and says so. *lend*: it takes a plain lock of that name, says so, gives it back a little
later, and says when it did.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import leaselock
from benchmarks.crew import say

THREADS = 4
LENT = 0.01


def take(client: leaselock.Client, local_handoffs: int, until: float) -> tuple[int, float]:
    """Take the lock and give it back, until then; how often, and the longest wait."""
    lock, count, longest = client.lock("crowd", local_handoffs=local_handoffs), 0, 0.0
    while (asked := time.monotonic()) < until:
        with lock:
            longest = max(longest, time.monotonic() - asked)
            count += 1
    return count, longest


def crowd(client: leaselock.Client, local_handoffs: int, seconds: float) -> None:
    """Several threads at once."""
    found: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    work = [
        threading.Thread(target=lambda: found.append(take(client, local_handoffs, until)))
        for _ in range(THREADS)
    ]
    for thread in work:
        thread.start()
    for thread in work:
        thread.join()
    say({"counts": [count for count, _ in found], "longest": max(wait for _, wait in found)})


def keep(client: leaselock.Client) -> None:
    """Keep what is named."""
    for line in sys.stdin:
        with client.lock(line.strip(), cached=True):
            pass
        say("kept")


def lend(client: leaselock.Client) -> None:
    """Hold what is named, for a moment."""
    for line in sys.stdin:
        with client.lock(line.strip()):
            say("held")
            # For that long the other process needs to begin to wait, which nothing tells.
            time.sleep(LENT)
            moment = time.monotonic()
        say(moment)


def main() -> None:
    """What the command line says."""
    url, what, local_handoffs, seconds = sys.argv[1:]
    with leaselock.Client(url) as client:
        if what in ("keep", "lend"):
            {"keep": keep, "lend": lend}[what](client)
        else:
            with client.lock(f"before {os.getpid()}"):
                say("ready")
            sys.stdin.readline()
            crowd(client, int(local_handoffs), float(seconds))


if __name__ == "__main__":
    main()
