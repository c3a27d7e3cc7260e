"""The Java side alone: what Redisson writes is what the other tests take for granted."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from verification.interop.java import Java

pytestmark = pytest.mark.nightly


def test_a_lock_is_a_hash_of_its_owner(java: Java, server: Redis) -> None:
    before = time.monotonic_ns()
    granted = int(java.obey("me", "lock", "alone"))
    assert before < granted < time.monotonic_ns()
    java.obey("me", "lock", "alone")
    owner, depth = server.ask("HGETALL", "alone")
    uuid, _, thread = owner.partition(":")
    assert [len(part) for part in uuid.split("-")] == [8, 4, 4, 4, 12]
    assert thread.isdecimal()
    assert depth == "2"
    assert 0 < server.ask("PTTL", "alone") <= 1500
    assert java.obey("me", "count", "alone") == "2 true"
    assert java.obey("other", "unlock", "alone") == "error IllegalMonitorStateException"
    assert java.obey("other", "trylock", "alone", 0).startswith("false ")
    java.obey("me", "unlock", "alone")
    java.obey("me", "unlock", "alone")
    assert server.ask("EXISTS", "alone") == 0


def test_a_release_is_published(java: Java, server: Redis) -> None:
    with server.wire() as wire:
        wire.ask("SUBSCRIBE", "redisson_lock__channel:{notified}")
        java.obey("me", "lock", "notified")
        java.obey("other", "force", "notified")
        assert wire.await_wakeup() == ["message", "redisson_lock__channel:{notified}", "0"]


def test_a_token_is_counted(java: Java, server: Redis) -> None:
    assert java.obey("me", "token", "fenced") == "1"
    assert server.ask("GET", "redisson_lock_token:{fenced}") == "1"
    java.obey("me", "unlock", "fenced")
    assert java.obey("me", "token", "fenced") == "2"
    java.obey("me", "unlock", "fenced")
