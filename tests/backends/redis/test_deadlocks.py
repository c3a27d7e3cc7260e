"""A search for a deadlock reads the locks that its wait leads to, among many others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis

import leaselock
from leaselock.errors import DeadlockDetected

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = 1000
# Longer than any operation here; a test that reaches it has failed.
TIMEOUT = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    """Return a server with many locks of one client, whose threads wait for nothing."""
    with Redis() as server, leaselock.Client(server.url) as client:
        locks = client.lock_all([f"foreign {number}" for number in range(FOREIGN)], lease=600.0)
        with locks:
            yield server


def read_keys(server: Redis) -> int:
    lines = server.ask("INFO", "stats").splitlines()
    found = dict(line.split(":", 1) for line in lines if ":" in line)
    return int(found["keyspace_hits"]) + int(found["keyspace_misses"])


@pytest.mark.parametrize("others", [0, 20])
@pytest.mark.parametrize("members", [2, 3, 5])
def test_a_search_reads_the_locks_of_the_cycle(server: Redis, members: int, others: int) -> None:
    """Each member holds one lock of the cycle, and others that no thread waits for."""
    holding, detected = threading.Barrier(members), []

    def run(number: int) -> None:
        with leaselock.Client(server.url, deadlock_timeout=0.05) as client:
            own = [f"own {number} {other}" for other in range(others)]
            with client.lock_all([*own, f"cycle {number}"]):
                holding.wait(TIMEOUT)
                try:
                    with client.lock(f"cycle {(number + 1) % members}", timeout=TIMEOUT):
                        pass
                except DeadlockDetected as error:
                    detected.append(error)

    server.ask("CONFIG", "RESETSTAT")
    threads = [threading.Thread(target=run, args=(number,)) for number in range(members)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT)
    (error,) = detected
    assert {wait.name for wait in error.deadlock} == {f"cycle {n}" for n in range(members)}
    assert "cmdstat_scan" not in server.ask("INFO", "commandstats")
    assert read_keys(server) < (others + 1) * FOREIGN
