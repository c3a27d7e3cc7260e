"""Processes behind a proxy in a storm: requests and replies are lost, held and cut at random.

Law: the proof is the history, as for processes that are killed. Whatever was lost, no two believe
at once, tokens rise, and when the storm is over everybody gets the lock, and nothing is left.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

import pytest
from tests.servers.redis import Redis

import leaselock
from leaselock.testing.chaos.crew import COLOURS, PATIENCE, Crew
from leaselock.testing.chaos.worker import LOCK
from leaselock.testing.checker import Rules, check
from leaselock.testing.fold import History
from leaselock.testing.proxy import ACTIONS, Proxy

if TYPE_CHECKING:
    from pathlib import Path

STORM = 4.0
PIECES = (b"EVALSHA", b"SUBSCRIBE", b"")
LEAST_GRANTS = 20


def storm(proxy: Proxy, lots: random.Random) -> None:
    """One fault after the other, several times a second."""
    faults = []
    end = time.monotonic() + STORM
    while time.monotonic() < end:
        time.sleep(lots.uniform(0.0, 0.3))
        if lots.random() < 0.1:
            proxy.cut_all()
        else:
            faults.append(proxy.plan(lots.choice(ACTIONS), lots.choice(PIECES), lots.randint(1, 8)))
        for fault in faults:
            # What was held arrives at some time, long after its asker gave up, or at once.
            if fault.struck.is_set() and lots.random() < 0.2:
                fault.passed.set()
    for fault in faults:
        fault.passed.set()


@pytest.mark.parametrize("seed", [1])
def test_a_storm(seed: int, tmp_path: Path) -> None:
    name = f"{LOCK} 0"
    with Redis() as server, Proxy(server.port) as proxy:
        with Crew(tmp_path, f"redis://127.0.0.1:{proxy.port}/0") as crew:
            for colour in COLOURS * 2:
                crew.start(colour)
            crew.everybody_granted()
            storm(proxy, random.Random(seed))
            proxy.calm()
            crew.everybody_granted(time.monotonic_ns())
            crew.kill_all()
        verdict = check(History.read(crew.history), Rules(min_grants=LEAST_GRANTS))
        assert verdict.ok, f"{verdict}\n{crew.complaints()}"
        assert crew.complaints() == ""
        with leaselock.Client(server.url) as client, client.lock(name, timeout=PATIENCE):
            # Whoever takes it clears the dead away, who could not do so themselves.
            assert client.lock(name).waiters() == []
        assert server.ask("EXISTS", name, f"leaselock:queue:{{{name}}}") == 0
