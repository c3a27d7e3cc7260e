"""Real servers whose clocks jump, and keys whose expiry another program removes.

Only the fencing token and a forced release (`break_lock`) help then.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.process import HOST, Location, eventually
from testkit.servers.redis import Redis
from verification.chaos.clock import Clocks

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timing

LEASE = 60.0
HOUR = 3600
# Longer than a lease of one second, at whose end a waiter asks again.
LONG = 2.5
SOON = 20.0
HOLDER = """
import sys, leaselock
client = leaselock.Client(sys.argv[1])
print(client.lock("a", lease=1.0).acquire().token, flush=True)
sys.stdin.read()
"""


class Timed(NamedTuple):
    """A server, and its clock."""

    server: Redis
    clocks: Clocks

    def jump(self, seconds: int) -> None:
        """Set the clock ahead, or back."""
        self.clocks.set(lambda: seconds)


def timed(stack: ExitStack, folder: Path) -> Timed:
    folder.mkdir()
    try:
        clocks = Clocks(folder)
    except LookupError as error:
        pytest.skip(str(error))
    enter = ("env", *(f"{name}={value}" for name, value in clocks.env.items()))
    return Timed(stack.enter_context(Redis(location=Location(HOST, enter))), clocks)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[Timed]]:
    with ExitStack() as stack:
        yield [timed(stack, tmp_path / str(number)) for number in range(3)]


@pytest.fixture
def one(tmp_path: Path) -> Iterator[Timed]:
    with ExitStack() as stack:
        yield timed(stack, tmp_path / "one")


def died_holding(url: str) -> int:
    """Start a process that acquires the lock, kill it, and return its token."""
    command = [sys.executable, "-c", HOLDER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        token = int(process.stdout.readline())
        process.kill()
    return token


def clock_complaints(client: leaselock.Client) -> list[str]:
    return [f.what for f in client.doctor() if f.level != "ok" and "clock" in f.what]


def taken(client: leaselock.Client, lease: float = LEASE) -> leaselock.Lease:
    return client.lock("a", lease=lease, renew=False).acquire(timeout=SOON)


def test_a_jump_ahead_ends_a_lease_and_the_next_token_is_greater(one: Timed) -> None:
    """Hazard B6."""
    with leaselock.Client(one.server.url) as holder, leaselock.Client(one.server.url) as rival:
        held = taken(holder)
        one.jump(HOUR)
        other = taken(rival)
        held.ensure()
        assert other.token > held.token
        assert clock_complaints(rival)
        with pytest.raises(leaselock.LeaseLost):
            held.release()


def test_after_a_jump_back_a_dead_holders_lock_must_be_broken(one: Timed) -> None:
    """Hazard B7."""
    token = died_holding(one.server.url)
    one.jump(-HOUR)
    with leaselock.Client(one.server.url) as client:
        assert client.lock("a").try_acquire(timeout=LONG) is None
        assert clock_complaints(client)
        broken = client.break_lock("a")
        assert broken is not None
        assert broken.token == token
        assert taken(client).token > token


def test_half_of_the_masters_of_a_redlock_jump_ahead(servers: list[Timed]) -> None:
    """Hazard H2: one alone changes nothing, two end the lease."""
    url = ",".join(one.server.url for one in servers)
    with leaselock.Client(url) as holder, leaselock.Client(url) as rival:
        held = taken(holder)
        servers[0].jump(HOUR)
        assert rival.lock("a").try_acquire(timeout=1.0) is None
        servers[1].jump(HOUR)
        other = taken(rival)
        held.ensure()
        assert other.token > held.token


def test_a_live_holder_restores_the_expiry_of_its_key(one: Timed) -> None:
    """Hazard G17."""
    with leaselock.Client(one.server.url) as client, client.lock("a", lease=1.0) as lease:
        one.server.ask("PERSIST", "lock:a")
        eventually(lambda: one.server.ask("PTTL", "lock:a") >= 0)
        lease.ensure()


def test_a_dead_holders_key_without_expiry_must_be_broken(one: Timed) -> None:
    """Hazard G17."""
    token = died_holding(one.server.url)
    assert one.server.ask("PERSIST", "lock:a") == 1
    with leaselock.Client(one.server.url) as client:
        assert client.lock("a").try_acquire(timeout=LONG) is None
        assert client.break_lock("a") is not None
        assert taken(client).token > token
