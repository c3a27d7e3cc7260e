"""A silent partition: the holder learns of the loss in time, and the lock passes to another."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pytest
from testkit.servers.net import Net
from testkit.servers.postgres import Postgres
from testkit.servers.process import eventually
from testkit.servers.redis import Redis
from testkit.servers.zookeeper import Ensemble, Server
from tests.backends.rivals import Waiter, loss_time, take

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testkit.servers.process import Location

pytestmark = pytest.mark.long

# These tests mostly wait, on private servers.
LEASE = 1.0
# The partition covers a renewal, and leaves time for another one even on a busy machine.
LONG_LEASE, SHORT = 4.0, 1.5
RIVAL = """
import sys, time, leaselock
with leaselock.Client(sys.argv[1]) as client, client.lock("it", lease=1.0) as lease:
    print(time.monotonic(), lease.token, flush=True)
    sys.stdin.read()
"""


def redis(stack: ExitStack, location: Location) -> str:
    return stack.enter_context(Redis(location=location)).url


def zookeeper(stack: ExitStack, location: Location) -> str:
    ensemble = stack.enter_context(Ensemble(locations=[location]))
    return f"zookeeper://{ensemble.hosts}/partitioned?timeout={{session}}"


def postgres(stack: ExitStack, location: Location) -> str:
    server = stack.enter_context(Postgres(location))
    with leaselock.Client(server.url) as client:
        client.setup()
    return server.url


def advisory(stack: ExitStack, location: Location) -> str:
    return f"{postgres(stack, location)}?protocol=advisory&session={{session}}"


class Fixture(NamedTuple):
    """A network with a server in it."""

    net: Net
    server: Location
    far: Location
    store: str

    def url(self, lease: float = LEASE) -> str:
        """Return its URL. A hold in a session is valid for half of the session timeout."""
        return self.store.format(session=2 * lease)

    @contextmanager
    def rival(self) -> Iterator[Callable[[], tuple[float, int]]]:
        """Start a process in the far namespace that waits for the lock.

        The yielded function returns the time of its grant and its token.
        """
        command = [*self.far.enter, sys.executable, "-c", RIVAL, self.url()]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            output = process.stdout
            assert output is not None

            def granted() -> tuple[float, int]:
                when, token = output.readline().split()
                return float(when), int(token)

            try:
                yield granted
            finally:
                process.kill()


STORES = [redis, zookeeper, postgres, advisory]


@pytest.fixture(scope="module", params=STORES, ids=lambda store: store.__name__)
def fixture(request: pytest.FixtureRequest) -> Iterator[Fixture]:
    with ExitStack() as stack:
        net = stack.enter_context(Net())
        server, far = net.add_location(), net.add_location()
        yield Fixture(net, server, far, request.param(stack, server))


def test_partition_shorter_than_the_lease_is_survived(fixture: Fixture) -> None:
    with leaselock.Client(fixture.url(LONG_LEASE)) as client:
        lease = client.lock("it", lease=LONG_LEASE).acquire()
        assert lease is not None
        fixture.net.part(fixture.net.near, fixture.server)
        time.sleep(SHORT)
        fixture.net.heal()
        ended = time.monotonic() + LONG_LEASE - SHORT
        eventually(lambda: lease.lost or time.monotonic() > ended)
        lease.release()


@pytest.mark.parametrize("way", ["both ways", "replies only"])
def test_loss_by_partition_is_reported_before_the_next_grant(fixture: Fixture, way: str) -> None:
    net, server = fixture.net, fixture.server
    with ExitStack() as stack:
        client = stack.enter_context(leaselock.Client(fixture.url()))
        lease = client.lock("it", lease=LEASE).acquire(timeout=20.0)
        when, granted = loss_time(lease), stack.enter_context(fixture.rival())
        eventually(lambda: client.lock("it").waiters())
        net.mute(server, net.near)
        if way == "both ways":
            net.mute(net.near, server)
        following, token = granted()
        assert when() < following
        assert token > lease.token
        net.heal()
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        # The rival is killed, so the lock stays held until its lease ends.
    with leaselock.Client(fixture.url()) as client:
        take(client, "it").release()


def test_server_without_a_quorum_does_not_renew() -> None:
    """Clients of a server without a quorum learn of the loss before the next grant (hazard I11)."""
    with Net() as net, Ensemble(locations=[net.add_location() for _ in range(3)]) as ensemble:
        lone = ensemble.followers()[0]
        others = [server for server in ensemble.servers if server is not lone]
        with (
            leaselock.Client(url_of([lone])) as client,
            leaselock.Client(url_of(others)) as rival,
        ):
            lease = take(client, "it")
            when, waiter = loss_time(lease), Waiter(rival, "it")
            eventually(lambda: rival.lock("it").waiters)
            for other in others:
                net.part(lone.location, other.location)
            following = waiter.join()
            assert when() < waiter.granted
            assert following.token > lease.token
            following.release()
            net.heal()


def url_of(servers: list[Server]) -> str:
    """Return a URL with these servers only."""
    hosts = ",".join(f"{server.location.host}:{server.port}" for server in servers)
    return f"zookeeper://{hosts}/partitioned?timeout={2 * LEASE}"
