"""Leases that stay in a client: passed on among its threads, or kept after a release.

Law: with and without are measured in turns, on one private server.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.servers.redis import Redis

import leaselock
from benchmarks.crew import python
from benchmarks.figures import jain, percentile, spread
from benchmarks.passer import take
from benchmarks.tables import Goal, Table

if TYPE_CHECKING:
    from benchmarks.scale import Scale

CHOICES = (0, 16, 64, 256)
MANY = 8
TIMES = 10.0
SLOWEST = 5e-6
RIVALS = 50


def run(scale: Scale) -> list[Table]:
    """Threads of one client, threads of two, and what is kept."""
    with Redis() as server:
        return [threads(server, scale), clients(server, scale), kept(server)]


def threads(server: Redis, scale: Scale) -> Table:
    """How often threads of one client take a lock in a second."""
    crowds = (1, 2, MANY)
    rates: dict[tuple[int, int], list[float]] = {}
    for _ in range(scale.crowd_rounds):
        for local_handoffs in CHOICES:
            for crowd in crowds:
                rate = together(server, crowd, local_handoffs, scale.crowd_turn)
                rates.setdefault((local_handoffs, crowd), []).append(rate)
    medians = {key: spread(found).median for key, found in rates.items()}
    rows = [[f"{p}", *(f"{medians[p, n]:,.0f}" for n in crowds)] for p in CHOICES]
    share = TIMES * medians[0, MANY] / medians[64, MANY]
    goal = Goal(
        f"{MANY} threads: {TIMES:g} times the rate without, by that with passes=64", share, 1.0
    )
    data = {"rates": {f"{p}/{n}": rate for (p, n), rate in medians.items()}}
    head = ["passes", *(f"{n} threads, /s" for n in crowds)]
    return Table("local: threads of one client, one lock", head, rows, data, [goal])


def together(server: Redis, crowd: int, local_handoffs: int, seconds: float) -> float:
    """The rate of so many threads."""
    counts: list[int] = []
    with leaselock.Client(server.url) as client:
        with client.lock("before"):
            until = time.monotonic() + seconds
        work = [
            threading.Thread(target=lambda: counts.append(take(client, local_handoffs, until)[0]))
            for _ in range(crowd)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    return sum(counts) / seconds


def clients(server: Redis, scale: Scale) -> Table:
    """Two processes with four threads each: is it fair, and how long do they wait?"""
    rows, data = [], {}
    for local_handoffs in CHOICES:
        crew = [
            python("benchmarks.passer", server.url, "crowd", local_handoffs, 2 * scale.crowd_turn)
            for _ in range(2)
        ]
        for member in crew:
            member.hear()
        for member in crew:
            member.tell("go")
        told = [member.hear() for member in crew]
        for member in crew:
            member.close()
        sums = [sum(one["counts"]) for one in told]
        each = [count for one in told for count in one["counts"]]
        longest = max(one["longest"] for one in told)
        data[f"{local_handoffs}"] = {"clients": sums, "jain": jain(sums), "longest": longest}
        fair = [f"{jain(sums):.3f}", f"{jain(each):.3f}", f"{longest * 1e3:.1f}"]
        rows.append([f"{local_handoffs}", f"{sum(sums):,}", *fair])
    head = ["passes", "times in all", "Jain of clients", "Jain of threads", "longest wait, ms"]
    return Table("local: two processes with four threads each", head, rows, data)


def kept(server: Redis) -> Table:
    """To take what is kept; and to take what another process keeps."""
    with leaselock.Client(server.url) as client:
        lock = client.lock("kept", cached=True)
        taken = []
        for _ in range(5000):
            asked = time.perf_counter()
            lease = lock.acquire()
            taken.append(time.perf_counter() - asked)
            assert lease is not None
            lease.release()
        kept, lent = rival(server, client, "keep"), rival(server, client, "lend")
    again, other, usual = (percentile(waits, 50) for waits in (taken, kept, lent))
    rows = [["again, µs", f"{again * 1e6:.1f}"], ["by another process, µs", f"{other * 1e6:.0f}"]]
    rows.append(["an ordinary hand-over to another process, µs", f"{usual * 1e6:.0f}"])
    goals = [
        Goal("to take a kept lease again, µs", again * 1e6, SLOWEST * 1e6),
        Goal("by another process / an ordinary hand-over to it", other / usual, 2.0),
    ]
    data = {"again": again, "other": other, "usual": usual}
    return Table("sticky: to take a lease that is kept", ["", "median"], rows, data, goals)


def rival(server: Redis, client: leaselock.Client, what: str) -> list[float]:
    """How long it takes when another process keeps it; or, from the release on, when it has it."""
    waits = []
    with python("benchmarks.passer", server.url, what, 0, 0) as other:
        for number in range(RIVALS):
            other.ask(f"rival{number % 5}")
            if what == "keep":
                # Its watcher needs a moment to listen, which nothing tells.
                time.sleep(0.005)
            asked = time.monotonic()
            with client.lock(f"rival{number % 5}"):
                granted = time.monotonic()
            waits.append(granted - (other.hear() if what == "lend" else asked))
    return waits
