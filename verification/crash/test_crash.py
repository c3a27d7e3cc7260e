"""Processes are killed and frozen at random moments on a real store; their history is checked.

Invariant: whenever a signal arrives, holds do not overlap, tokens increase, and waiters get the
lock. To be sure that holders are killed, a worker is stopped and inspected first. A failing seed
can be run again, though not with the same timing.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from testkit.chaos.worker_pool import (
    BILLION,
    FREEZE,
    KINDS,
    LEASE,
    WorkerPool,
    wait_until,
)
from testkit.servers.redis import Redis

from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History
from leaselock.testing.record_format import Event, read_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FREEZES, KILLS, KILLED_HOLDERS = 3, 3, 4
GRANTS_BETWEEN = 20
LONG_LEASE = 60.0
# A frozen process may be the one that the lock is granted to, or be in a transaction, and the
# machine may be slow: the bound only has to show that the lock does not stay idle for good.
BOUND = round((FREEZE + LEASE + 3.0) * BILLION)
RULES = Rules(
    min_grants=GRANTS_BETWEEN * (FREEZES + KILLS + KILLED_HOLDERS),
    min_contention=0.3,
    min_died_holding=KILLED_HOLDERS,
    ghost_bound=BOUND,
    hand_over_bound=BOUND,
)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[WorkerPool]:
    with WorkerPool(tmp_path, f"sqlite:///{tmp_path}/locks.db") as found:
        yield found


def inject_faults(pool: WorkerPool, rng: random.Random) -> None:
    """Kill or freeze workers, one after the other; replace the killed ones."""
    faults = ["freeze"] * FREEZES + ["kill"] * KILLS + ["kill holder"] * KILLED_HOLDERS
    rng.shuffle(faults)
    for fault in faults:
        before = time.monotonic_ns()
        threading.Event().wait(rng.uniform(0.0, 0.05))
        if fault == "freeze":
            pool.freeze(rng.choice(pool.running), FREEZE)
        else:
            holder = fault == "kill holder"
            pool.kill(pool.stop_a_holder(rng) if holder else rng.choice(pool.running))
            pool.start(rng.choice(KINDS))
        wait_until(lambda before=before: len(pool.recent_grants(None, before)) >= GRANTS_BETWEEN)  # type: ignore[misc]


@pytest.mark.parametrize("seed", [1, 2])
def test_killed_and_frozen_processes(seed: int, pool: WorkerPool) -> None:
    check_run(seed, pool)


def test_killed_and_frozen_processes_on_redis(tmp_path: Path) -> None:
    with Redis() as server, WorkerPool(tmp_path, server.url) as pool:
        check_run(3, pool)


def check_run(seed: int, pool: WorkerPool) -> None:
    """Start workers, inject faults, and check the history."""
    for kind in KINDS * 2:
        pool.start(kind)
    pool.wait_until_all_granted()
    inject_faults(pool, random.Random(seed))
    pool.wait_until_all_granted(time.monotonic_ns())
    pool.kill_all()
    verdict = check(History.read(pool.history), RULES)
    assert verdict.ok, f"{verdict}\n{pool.errors()}"
    assert pool.errors() == ""


@pytest.mark.parametrize("waiter", KINDS)
@pytest.mark.parametrize("holder", KINDS)
def test_lock_of_a_killed_holder_is_granted_within_a_second(
    holder: str, waiter: str, pool: WorkerPool
) -> None:
    victim = pool.start(holder, "hold", LONG_LEASE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"holding\n"
    successor = pool.start(waiter, lease=LONG_LEASE)
    wait_until(
        lambda: any(r.event is Event.ACQUIRING for r in pool.recent_records({successor.pid}))
    )
    killed = time.monotonic_ns()
    os.kill(victim.pid, signal.SIGKILL)
    wait_until(lambda: pool.recent_grants({successor.pid}))
    grants = [r.ts for r in read_records(pool.history) if r.event is Event.GRANTED]
    assert min(instant for instant in grants if instant > killed) - killed < BILLION
    pool.reap(victim)
