"""A process for the benchmark of local hand-off: arguments URL MODE LOCAL_HANDOFFS SECONDS.

*contend*: four threads acquire one lock in a loop; report how often each did, and the longest wait.
*cache*: for each input line, acquire a cached lock of that name, release it, and report.
*hold*: for each input line, acquire an ordinary lock of that name, report, release it shortly
after, and report the time of the release.
"""

from __future__ import annotations

import os
import sys
import threading
import time

import leaselock
from benchmarks.workers.process import report

THREADS = 4
HOLD_SECONDS = 0.01


def acquire_until(client: leaselock.Client, local_handoffs: int, until: float) -> tuple[int, float]:
    """Acquire and release the lock until *until*; return how often, and the longest wait."""
    lock, count, longest = client.lock("contended", local_handoffs=local_handoffs), 0, 0.0
    while (requested := time.monotonic()) < until:
        with lock:
            longest = max(longest, time.monotonic() - requested)
            count += 1
    return count, longest


def contend(client: leaselock.Client, local_handoffs: int, seconds: float) -> None:
    """Contend with several threads, and report."""
    found: list[tuple[int, float]] = []
    until = time.monotonic() + seconds
    threads = [
        threading.Thread(target=lambda: found.append(acquire_until(client, local_handoffs, until)))
        for _ in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    report({"counts": [count for count, _ in found], "longest": max(wait for _, wait in found)})


def cache(client: leaselock.Client) -> None:
    """Cache a lease for each input line."""
    for line in sys.stdin:
        with client.lock(line.strip(), cached=True):
            pass
        report("cached")


def hold(client: leaselock.Client) -> None:
    """Hold a lock briefly for each input line."""
    for line in sys.stdin:
        with client.lock(line.strip()):
            report("held")
            # The other process must start to wait in this time; no event shows that it does.
            time.sleep(HOLD_SECONDS)
            moment = time.monotonic()
        report(moment)


def main() -> None:
    """Run the mode that the command line names."""
    url, mode, local_handoffs, seconds = sys.argv[1:]
    with leaselock.Client(url) as client:
        if mode in ("cache", "hold"):
            {"cache": cache, "hold": hold}[mode](client)
        else:
            with client.lock(f"warm-up {os.getpid()}"):
                report("ready")
            sys.stdin.readline()
            contend(client, int(local_handoffs), float(seconds))


if __name__ == "__main__":
    main()
