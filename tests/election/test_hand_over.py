"""How long until the next leader acts: after a resignation, SIGTERM, SIGKILL and SIGSTOP.

With LEASELOCK_HAND_OVER=FILE the table is written there.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from testkit.servers.databases import emptied
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from tests.election.worker import NAME, now
from tests.pace import pace

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timing
ROOT = Path(__file__).parents[2]
LEASE = 3.0
SESSION = 4.0
TRIALS = 5
WAYS = ("resigns", "SIGTERM", "SIGKILL", "SIGSTOP")
STORES = ("sqlite", "redis", "postgres", "mariadb", "zookeeper", "etcd")
# Beside the guarantee: to notice the end of a lease, and a slow machine.
NOTICE = 1.0


class Cell(NamedTuple):
    """The times of one way on one store, and the guarantee."""

    times: list[float]
    guarantee: float

    def __str__(self) -> str:
        worst = f"{max(self.times):.3f}"
        bound = f"{self.guarantee:g} s and a hand-off" if self.guarantee else "a hand-off"
        return f"{statistics.median(self.times):.3f} / {worst} (≤ {bound})"


TABLE: dict[tuple[str, str], Cell] = {}


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with Redis() as server:
        yield server.url


@pytest.fixture(scope="module")
def page() -> Iterator[None]:
    """At the end, write what was measured."""
    yield
    target = os.environ.get("LEASELOCK_HAND_OVER")
    if target:
        Path(target).write_text(table(), "utf-8")


def table() -> str:
    head = ["| store | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    rows = [
        f"| {store} | " + " | ".join(str(TABLE[store, way]) for way in WAYS) + " |"
        for store in STORES
        if (store, WAYS[-1]) in TABLE
    ]
    return "\n".join([*head, *rows, ""])


def url_of(store: str, request: pytest.FixtureRequest, folder: Path) -> str:
    if store == "sqlite":
        return f"sqlite:///{folder}/locks.db"
    if store == "redis":
        return str(request.getfixturevalue("redis"))
    if store == "etcd":
        return str(request.getfixturevalue("etcd").url(folder.name))
    if store == "zookeeper":
        hosts = request.getfixturevalue("ensemble").hosts
        return f"zookeeper://{hosts}?timeout={SESSION}"
    return emptied(request.getfixturevalue(store))


def guarantee(store: str, way: str) -> float:
    """Seconds after which the next leader leads at the latest; 0 for a hand-off."""
    if way in ("resigns", "SIGTERM") or (store, way) == ("sqlite", "SIGKILL"):
        return 0.0
    # A session ends at a tick of the servers.
    return SESSION + 2.0 if store == "zookeeper" else LEASE


class Leader:
    """A process that leads."""

    def __init__(self, url: str) -> None:
        command = [sys.executable, "-m", "tests.election.worker", "lead", url, str(LEASE)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "leads\n"

    def go(self, way: str) -> float:
        """End its leadership; return when that began."""
        process: Any = self.process
        if way == "resigns":
            process.stdin.write("\n")
            process.stdin.flush()
            return float(process.stdout.readline())
        began = now()
        process.send_signal(getattr(signal, way))
        return began

    def end(self) -> None:
        """Leave nothing behind."""
        self.process.kill()
        self.process.communicate()


def trial(url: str, way: str) -> float:
    """One hand-over to this process, which waits in the queue."""
    leader = Leader(url)
    led: list[float] = []
    with leaselock.Client(url) as client:
        election = client.election(NAME, lease=LEASE)

        def succeed() -> None:
            with election.lead():
                led.append(now())

        waiting = threading.Thread(target=succeed)
        waiting.start()
        try:
            eventually(lambda: bool(client.lock(NAME).waiters()))
            began = leader.go(way)
            waiting.join(60.0 * pace())
        finally:
            leader.end()
            waiting.join()
    return led[0] - began


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("store", STORES)
def test_the_next_leader_leads_within_the_guarantee(
    store: str, way: str, request: pytest.FixtureRequest, tmp_path: Path, page: None
) -> None:
    url = url_of(store, request, tmp_path)
    bound = guarantee(store, way)
    cell = TABLE[store, way] = Cell([trial(url, way) for _ in range(TRIALS)], bound)
    print(f"{store}, {way}: {cell}")
    assert max(cell.times) <= bound + NOTICE * pace(), "the guarantee"
    if way in ("SIGKILL", "SIGSTOP") and bound:
        assert min(cell.times) > 0.0
