"""A client of redis-py that the user has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis as redis_py
import redis.asyncio as redis_aio

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis


def test_client_with_a_protocol(redis: Redis) -> None:
    given = redis_py.Redis(port=redis.port)
    with leaselock.Client(given, protocol="string") as client:
        lease = client.lock("a").acquire()
        (report,) = client.locks()
        assert report.name == "a"
        assert report.holder is not None
        assert report.holder.token == lease.token
        held = [key for key in redis.ask("KEYS", "*a") if redis.ask("TYPE", key) == "string"]
        assert len(held) == 1
        broken = client.break_lock("a", token=lease.token)
        assert broken is not None
        with pytest.raises(leaselock.LeaseLost):
            lease.release()
        lease = client.lock("b").acquire()
        lease.detach()
        client.adopt("b", lease.token).release()
        assert not client.lock("b").locked()
    given.close()


def test_protocol_of_a_url_may_be_said_by_the_argument(redis: Redis) -> None:
    with leaselock.Client(redis.url, protocol="string") as client, client.lock("a"):
        held = [key for key in redis.ask("KEYS", "*a") if redis.ask("TYPE", key) == "string"]
        assert len(held) == 1
    with pytest.raises(ValueError, match="two protocols"):
        leaselock.Client(f"{redis.url}?protocol=hash", protocol="string")


def test_unknown_protocol_is_refused(redis: Redis) -> None:
    with pytest.raises(ValueError, match="hash, string"):
        leaselock.Client(redis.url, protocol="nonsense")
    with pytest.raises(ValueError, match="queue"):
        leaselock.Client("memory://", protocol="nonsense")


class Tunnel(redis_py.Connection):
    """A connection that goes another way than to its host."""


class AioTunnel(redis_aio.Connection):
    """A connection that goes another way than to its host."""


def test_connections_of_another_kind_are_refused(redis: Redis) -> None:
    pool = redis_py.ConnectionPool(connection_class=Tunnel, port=redis.port)
    with pytest.raises(TypeError, match="connection_class Tunnel"):
        leaselock.Client(redis_py.Redis(connection_pool=pool))
    aio = redis_aio.ConnectionPool(connection_class=AioTunnel, port=redis.port)
    with pytest.raises(TypeError, match="connection_class AioTunnel"):
        leaselock.AsyncClient(redis_aio.Redis(connection_pool=aio))
