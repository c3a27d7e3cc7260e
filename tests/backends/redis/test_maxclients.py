"""A server without a free connection: a client keeps and releases its locks before it waits.

Invariant: a thread that waits for a lock never takes the connection that renewals need.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from testkit.servers.redis import Redis

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

LIMIT = 60.0


@pytest.fixture
def server() -> Iterator[Redis]:
    with Redis() as made:
        yield made


def test_locks_are_kept_and_released_while_threads_wait(server: Redis) -> None:
    """The client's one connection is all that the server has left."""
    granted: list[int] = []
    with server.wire() as control, leaselock.Client(server.url, op_timeout=LIMIT) as client:
        lease, other = client.lock("a", lease=LIMIT).acquire(), client.lock("b").acquire()
        control.ask("CONFIG", "SET", "maxclients", "2")
        assert len(control.ask("CLIENT", "LIST").splitlines()) == 2

        def wait() -> None:
            with client.lock("a", timeout=LIMIT) as late:
                granted.append(late.token)

        waiter = threading.Thread(target=wait)
        waiter.start()
        for _ in range(5):
            eventually(lambda: control.ask("PUBSUB", "CHANNELS"))
            lease.extend(LIMIT)
            other.ensure()
        eventually(lambda: control.ask("PUBSUB", "CHANNELS"))
        other.release()
        lease.release()
        waiter.join(LIMIT)
        assert len(granted) == 1
        assert granted[0] > lease.token
