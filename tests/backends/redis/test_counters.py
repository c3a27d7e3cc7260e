"""What is left in Redis of locks that are not used any more."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import eventually
from tests.people import use

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

COUNT = 200


def endless(redis: Redis) -> list[str]:
    return [key for key in redis.stored_keys() if redis.ask("PTTL", key) == -1]


@pytest.mark.parametrize("form", ["hash", "string"])
def test_every_key_expires(redis: Redis, form: str) -> None:
    use(f"{redis.url}?protocol={form}", COUNT)
    assert len(redis.stored_keys()) == COUNT
    assert endless(redis) == []


def test_nothing_is_left_after_the_time_in_the_url(redis: Redis) -> None:
    before = use(f"{redis.url}?token_ttl=0.05", COUNT)
    eventually(lambda: redis.stored_keys() == [])
    after = use(redis.url, COUNT)
    assert all(after[name] > before[name] for name in before)


def test_counters_are_kept_and_gc_removes_the_old_ones(redis: Redis) -> None:
    before = use(f"{redis.url}?token_ttl=0", COUNT)
    assert len(endless(redis)) == COUNT
    with leaselock.Client(f"{redis.url}?token_ttl=0") as client:
        # The names that are not in use any more leave the index.
        assert client.gc() == COUNT
        assert client.gc() == 0
    assert len(endless(redis)) == COUNT
    redis.ask("SET", "redisson_lock_token:{lock:java}", "7")
    with leaselock.Client(f"{redis.url}?token_ttl=0.001s") as client:
        told = [finding.what for finding in client.doctor() if finding.level == "warn"]
        assert any(f"{COUNT + 1} of {COUNT + 1} token counters" in what for what in told)
        held = client.lock("held").acquire()
        assert held is not None
        assert client.gc() == COUNT
        assert client.lock("held").locked()
    assert redis.ask("GET", "redisson_lock_token:{lock:java}") == "7"
    after = use(redis.url, COUNT)
    assert all(after[name] > before[name] for name in before)


@pytest.mark.parametrize("word", ["x", "-1", "7w", "nan", "1e9d"])
def test_wrong_time_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"\?token_ttl= must be .* or a duration such as"):
        leaselock.Client(f"redis://localhost?token_ttl={word}")
