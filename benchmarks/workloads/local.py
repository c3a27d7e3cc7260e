"""Local hand-off and cached leases, compared with ordinary locks on one private server."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from testkit.servers.redis import Redis

import leaselock
from benchmarks.figures import jain, percentile, spread
from benchmarks.tables import Goal, Table
from benchmarks.workers.local_handoff import acquire_until
from benchmarks.workers.process import python_worker

if TYPE_CHECKING:
    from benchmarks.scale import Scale

HANDOFF_LIMITS = (0, 16, 64, 256)
MAX_THREADS = 8
MIN_SPEEDUP = 10.0
MAX_CACHED = 5e-6
RIVALS = 50
ACQUIRES, PAUSE = 1000, 0.2


def run(scale: Scale) -> list[Table]:
    """Measure threads of one client, threads of two clients, and cached leases."""
    with Redis() as server:
        return [threads(server, scale), clients(server, scale), cached(server, scale)]


def threads(server: Redis, scale: Scale) -> Table:
    """Measure how often per second threads of one client acquire a lock."""
    thread_counts = (1, 2, MAX_THREADS)
    rates: dict[tuple[int, int], list[float]] = {}
    for _ in range(scale.contention_rounds):
        for local_handoffs in HANDOFF_LIMITS:
            for count in thread_counts:
                rate = rate_of(server, count, local_handoffs, scale.contention_seconds)
                rates.setdefault((local_handoffs, count), []).append(rate)
    medians = {key: spread(found).median for key, found in rates.items()}
    rows = [[f"{p}", *(f"{medians[p, n]:,.0f}" for n in thread_counts)] for p in HANDOFF_LIMITS]
    share = MIN_SPEEDUP * medians[0, MAX_THREADS] / medians[64, MAX_THREADS]
    goal = Goal(
        f"{MAX_THREADS} threads: {MIN_SPEEDUP:g} x the rate without / that with local_handoffs=64",
        share,
        1.0,
    )
    data = {"rates": {f"{p}/{n}": rate for (p, n), rate in medians.items()}}
    head = ["local_handoffs", *(f"{n} threads, /s" for n in thread_counts)]
    return Table("local: threads of one client, one lock", head, rows, data, [goal])


def rate_of(server: Redis, threads: int, local_handoffs: int, seconds: float) -> float:
    """Return the rate of *threads* threads."""
    counts: list[int] = []
    with leaselock.Client(server.url) as client:
        with client.lock("before"):
            until = time.monotonic() + seconds
        work = [
            threading.Thread(
                target=lambda: counts.append(acquire_until(client, local_handoffs, until)[0])
            )
            for _ in range(threads)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    return sum(counts) / seconds


def clients(server: Redis, scale: Scale) -> Table:
    """Measure the fairness and waits of two processes with four threads each."""
    rows, data = [], {}
    for local_handoffs in HANDOFF_LIMITS:
        processes = [
            python_worker(
                "benchmarks.workers.local_handoff",
                server.url,
                "contend",
                local_handoffs,
                2 * scale.contention_seconds,
            )
            for _ in range(2)
        ]
        for worker in processes:
            worker.receive()
        for worker in processes:
            worker.send("go")
        reports = [worker.receive() for worker in processes]
        for worker in processes:
            worker.close()
        sums = [sum(one["counts"]) for one in reports]
        each = [count for one in reports for count in one["counts"]]
        longest = max(one["longest"] for one in reports)
        data[f"{local_handoffs}"] = {"clients": sums, "jain": jain(sums), "longest": longest}
        fair = [f"{jain(sums):.3f}", f"{jain(each):.3f}", f"{longest * 1e3:.1f}"]
        rows.append([f"{local_handoffs}", f"{sum(sums):,}", *fair])
    head = ["local_handoffs", "acquired", "Jain of clients", "Jain of threads", "longest wait, ms"]
    return Table("local: two processes with four threads each", head, rows, data)


def cached(server: Redis, scale: Scale) -> Table:
    """Measure acquiring a lease cached by this process, and one cached by another process."""
    own, in_memory = [], []
    with leaselock.Client(server.url) as client, leaselock.Client("memory://cached") as memory:
        lock, free = client.lock("cached", cached=True), memory.lock("free")
        # A thousand take a hundredth of a second: in one series, one slow moment decided.
        for _ in range(scale.rounds):
            time.sleep(PAUSE)
            own.append(acquire_time(lock))
            in_memory.append(acquire_time(free))
        from_cache, ordinary = (rival(server, client, mode) for mode in ("cache", "hold"))
    again, floor = spread(own).median, spread(in_memory).median
    other, usual = (percentile(waits, 50) for waits in (from_cache, ordinary))
    rows = [
        ["by the same process, µs", spread(own).show(1e6)],
        ["a free lock in memory, µs", spread(in_memory).show(1e6)],
        ["by another process, µs", f"{other * 1e6:.0f}"],
    ]
    rows.append(["ordinary hand-off to another process, µs", f"{usual * 1e6:.0f}"])
    goals = [
        Goal("acquire a cached lease, µs", again * 1e6, MAX_CACHED * 1e6),
        Goal("by another process / ordinary hand-off to it", other / usual, 2.0),
    ]
    data = {"again": again, "memory": floor, "other": other, "usual": usual}
    return Table("cached: acquire a cached lease", ["", "median"], rows, data, goals)


def acquire_time(lock: leaselock.Lock) -> float:
    """Return the median time of an acquire."""
    times = []
    for _ in range(ACQUIRES):
        asked = time.perf_counter()
        lease = lock.acquire()
        times.append(time.perf_counter() - asked)
        assert lease is not None
        lease.release()
    return percentile(sorted(times), 50)


def rival(server: Redis, client: leaselock.Client, mode: str) -> list[float]:
    """Return the times to acquire a lock that another process caches, or from its release on."""
    waits = []
    with python_worker("benchmarks.workers.local_handoff", server.url, mode, 0, 0) as other:
        for number in range(RIVALS):
            other.request(f"rival{number % 5}")
            if mode == "cache":
                # The other process must start to listen in this time; no event shows that it does.
                time.sleep(0.005)
            asked = time.monotonic()
            with client.lock(f"rival{number % 5}"):
                granted = time.monotonic()
            waits.append(granted - (other.receive() if mode == "hold" else asked))
    return waits
