"""A holder that is stopped, and the waiters behind it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.everyday.people import got, running, waiting
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

# What a busy machine may add to a time that is bounded here; the errors that these tests show
# added two seconds and more.
SLACK = 1.0
TIMEOUT = 60.0

HOLDER = """
import os, threading, leaselock
lease = leaselock.Client(os.environ["LEASELOCK_URL"]).lock("a", lease=1.5).acquire()
print("held", flush=True)
threading.Event().wait()
"""


@pytest.mark.timing
@pytest.mark.parametrize("store", ["sqlite", "redis"])
def test_lock_of_a_stopped_holder_passes_on_when_its_lease_ends(
    redis: Redis, tmp_path: Path, store: str
) -> None:
    """To one who stood behind that holder in the queue, and was not the first one then."""
    url = redis.url if store == "redis" else f"sqlite:///{tmp_path}/locks.db"
    with (
        leaselock.Client(url) as first,
        leaselock.Client(url) as last,
        ThreadPoolExecutor(1) as pool,
    ):
        held = first.lock("a").acquire()
        assert held is not None
        with running(tmp_path, HOLDER, url) as holder:
            waiting(url, 1)
            behind = pool.submit(got, last.lock("a"))
            waiting(url, 2)
            held.release()
            eventually(lambda: "held" in holder.output())
            holder.pause()
            stopped = time.monotonic()
            assert behind.result(TIMEOUT) - stopped < 1.5 + SLACK * pace()
