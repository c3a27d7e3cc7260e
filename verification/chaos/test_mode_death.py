"""A reader, a writer, a holder of permits, or a waiter is killed: what it held becomes free, and
nothing else does.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.pace import pace
from verification.chaos.mode_stores import LEASE, STORES, semaphore, sides, url_of

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
# Longer than any lease, session or transaction lasts on a slow machine.
TIMEOUT = 60.0


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return url_of(request.param, request, tmp_path)


@pytest.fixture
def client(url: str) -> Iterator[leaselock.Client]:
    with leaselock.Client(url) as client:
        yield client


@contextmanager
def process(url: str, kind: str, *, holds: bool = True) -> Iterator[subprocess.Popen[str]]:
    """A process that holds, or waits; it is killed at the end."""
    words = [sys.executable, "-m", "verification.chaos.mode_holder", url, kind, str(LEASE * pace())]
    pipe = subprocess.PIPE
    with subprocess.Popen(words, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as child:
        try:
            assert child.stdout is not None
            for line in ("asking\n", "holding\n") if holds else ("asking\n",):
                assert child.stdout.readline() == line
            yield child
        finally:
            child.kill()


def acquire(lock: leaselock.Lock) -> leaselock.Lease:
    return lock.acquire(timeout=TIMEOUT)


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_a_killed_reader_leaves_the_other_readers(url: str, client: leaselock.Client) -> None:
    mine = sides(client)
    with mine.read.acquire() as lease:
        with process(url, "read") as victim:
            eventually(lambda: len(mine.read.holders()) == 2)
            victim.kill()
            eventually(lambda: [h.token for h in mine.read.holders()] == [lease.token], TIMEOUT)
        lease.ensure()
        with leaselock.Client(url) as other:
            assert sides(other).write.try_acquire() is None
    acquire(mine.write).release()


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_a_killed_writer_leaves_other_locks(url: str, client: leaselock.Client) -> None:
    mine, other = sides(client), sides(client, "b")
    with other.write.acquire() as lease:
        with process(url, "write") as victim:
            assert mine.read.try_acquire() is None
            victim.kill()
            acquire(mine.read).release()
        lease.ensure()
        assert [holder.token for holder in other.write.holders()] == [lease.token]


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_a_killed_waiting_writer_lets_readers_in(url: str, client: leaselock.Client) -> None:
    mine = sides(client)
    with mine.read.acquire() as lease, leaselock.Client(url) as other:
        with process(url, "write", holds=False) as victim:
            eventually(lambda: len(mine.write.waiters()) == 1, TIMEOUT)
            victim.kill()
            acquire(sides(other).read).release()
        lease.ensure()


@pytest.mark.parametrize("url", STORES, indirect=True)
def test_killed_permits_leave_the_others(url: str, client: leaselock.Client) -> None:
    mine = semaphore(client, 3)
    with mine.acquire() as lease:
        with process(url, "permits") as victim:
            assert mine.available() == 0
            victim.kill()
            two = mine.acquire(2, timeout=TIMEOUT)
            assert mine.available() == 0
            two.release()
        lease.ensure()
        assert [holder.token for holder in mine.holders()] == [lease.token]
