"""Processes behind a proxy: requests and replies are lost, delayed and cut at random.

Invariant: whatever was lost, holds do not overlap and tokens increase. After the last fault every
worker gets the lock, and nothing is left in the store.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from testkit.chaos.worker import LOCK
from testkit.chaos.worker_pool import KINDS, TIMEOUT, WorkerPool
from testkit.proxy import ACTIONS, Proxy
from testkit.servers.redis import Redis

import leaselock
from leaselock._backends.redis.keys import keys_of
from leaselock.testing.checker import Rules, check
from leaselock.testing.history import History

if TYPE_CHECKING:
    from pathlib import Path

DURATION = 4.0
PIECES = (b"EVALSHA", b"SUBSCRIBE", b"")
LEAST_GRANTS = 20


def inject_faults(proxy: Proxy, rng: random.Random) -> None:
    """Inject one fault after the other, several times a second."""
    faults = []
    end = time.monotonic() + DURATION
    while time.monotonic() < end:
        time.sleep(rng.uniform(0.0, 0.3))
        if rng.random() < 0.1:
            proxy.cut_all()
        else:
            faults.append(proxy.plan(rng.choice(ACTIONS), rng.choice(PIECES), rng.randint(1, 8)))
        for fault in faults:
            # A held message arrives some time after its client gave up, or at once.
            if fault.injected.is_set() and rng.random() < 0.2:
                fault.passed.set()
    for fault in faults:
        fault.passed.set()


@pytest.mark.parametrize("seed", [1])
def test_random_network_faults(seed: int, tmp_path: Path) -> None:
    name = f"{LOCK} 0"
    with Redis() as server, Proxy(server.port) as proxy:
        with WorkerPool(tmp_path, f"redis://127.0.0.1:{proxy.port}/0") as pool:
            for kind in KINDS * 2:
                pool.start(kind)
            pool.wait_until_all_granted()
            inject_faults(proxy, random.Random(seed))
            proxy.calm()
            pool.wait_until_all_granted(time.monotonic_ns())
            pool.kill_all()
        verdict = check(History.read(pool.history), Rules(min_grants=LEAST_GRANTS))
        assert verdict.ok, f"{verdict}\n{pool.errors()}"
        assert pool.errors() == ""
        with leaselock.Client(server.url) as client, client.lock(name, timeout=TIMEOUT):
            # The next acquire removes dead waiters, which could not do so themselves.
            assert client.lock(name).waiters() == []
        assert server.ask("EXISTS", *keys_of(name)[2:]) == 0
        assert server.ask("EXISTS", f"lock:{name}") == 0
