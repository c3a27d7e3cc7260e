"""What the keys of locks in Redis begin with, and what others write to share them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import redis as redis_py
from testkit.servers.process import eventually
from testkit.servers.redis import as_masters

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

PREFIXES = {
    "": "lock:a",
    "?prefix=": "a",
    "?prefix=app:lock:": "app:lock:a",
    "?prefix=%7Bx%7D": "{x}a",
}


@pytest.mark.parametrize("query", PREFIXES)
def test_key_is_the_prefix_and_the_name(redis: Redis, query: str) -> None:
    with leaselock.Client(f"{redis.url}{query}") as client, client.lock("a"):
        assert redis.ask("TYPE", PREFIXES[query]) == "hash"
        assert [lock.name for lock in client.locks()] == ["a"]
        assert [lock.name for lock in client.locks("a")] == ["a"]


def test_prefix_is_an_argument_as_well(redis: Redis) -> None:
    theirs = redis_py.Redis(port=redis.port)
    with leaselock.Client(theirs, prefix="x:") as client, client.lock("a"):
        assert redis.ask("EXISTS", "x:a") == 1
        with leaselock.Client(client.url) as other:
            assert other.lock("a").locked()
        with leaselock.Client(redis.url) as other:
            assert not other.lock("a").locked()
            assert other.locks() == []
    theirs.close()


@pytest.mark.parametrize("prefix", ["redisson_x", "leaselock:", "a\n", "x" * 201])
def test_prefix_that_cannot_be_used_is_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="cannot be used"):
        leaselock.Client("redis://localhost", prefix=prefix)


def test_prefix_is_for_redis_and_is_said_once() -> None:
    with pytest.raises(ValueError, match="two prefixes"):
        leaselock.Client("redis://localhost?prefix=a", prefix="b")
    with pytest.raises(ValueError, match="Redis"):
        leaselock.Client("memory://", prefix="b")
    with pytest.raises(TypeError, match="a text"):
        leaselock.Client("redis://localhost", prefix=5)  # type: ignore[arg-type]


def test_redlock_has_the_prefix_on_each_master(redis: Redis) -> None:
    with (
        leaselock.Client(as_masters(f"127.0.0.1:{redis.port}"), prefix="x:") as client,
        client.lock("a"),
    ):
        for number in range(3):
            with redis.wire() as wire:
                wire.ask("SELECT", number)
                # Two of three grants are enough: the third may still be on its way.
                eventually(lambda ask=wire.ask: ask("EXISTS", "x:a") == 1)  # type: ignore[misc]
