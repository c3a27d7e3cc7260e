"""A process of these tests: it runs once per period, or stands for election.

python -m tests.election.worker once URL RUNS EVERY ALIGN FILE
python -m tests.election.worker lead URL LEASE
"""

from __future__ import annotations

import contextlib
import random
import sys
import time

import leaselock

NAME = "job"
# Seconds between two tries, on the average: all workers together try far more often than once.
PAUSE = 0.1


def now() -> float:
    """The boot clock, which all processes of the machine share, however wrong their wall clocks."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def run_once_per_period(url: str, runs: int, every: float, align: bool, file: str) -> None:
    """Try until the file has *runs* lines; each line is one run: its token, and when it was asked
    for and granted.
    """
    with leaselock.Client(url) as client, open(file, "a+", buffering=1) as record:
        while True:
            record.seek(0)
            if len(record.readlines()) >= runs:
                return
            asked, lease = now(), None
            # A try gets one second for its answer, which a busy machine may not give.
            with contextlib.suppress(leaselock.StoreError):
                lease = client.once(NAME, every=every, align=align)
            if lease is not None:
                with lease:
                    record.write(f"{lease.token} {asked:.6f} {now():.6f}\n")
            time.sleep(random.uniform(0.0, 2 * PAUSE))


def lead(url: str, lease: float) -> None:
    """Lead until resigning is asked for on stdin; print when."""
    with leaselock.Client(url) as client:
        election = client.election(NAME, lease=lease)

        def work(held: leaselock.Lease) -> None:
            print("leads", flush=True)
            sys.stdin.readline()
            print(f"{now():.6f}", flush=True)

        election.run(work)


if __name__ == "__main__":
    if sys.argv[1] == "once":
        where, runs, every, align, file = sys.argv[2:]
        run_once_per_period(where, int(runs), float(every), align == "True", file)
    else:
        lead(sys.argv[2], float(sys.argv[3]))
