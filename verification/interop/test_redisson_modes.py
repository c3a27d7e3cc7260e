"""Redisson finds a lock taken that has readers or permits of leaselock, and the other way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from verification.interop.test_redisson import java_waits, key

if TYPE_CHECKING:
    from testkit.servers.redis import Redis
    from verification.interop.java import Java

    import leaselock

pytestmark = pytest.mark.nightly

TIMEOUT = 30.0
VERBS = ("", "read-", "write-")


def refused(java: Java, name: str) -> list[str]:
    """The locks of Redisson that find the lock taken, each by a thread of its own."""
    found = []
    for verb in VERBS:
        answer = java.obey(f"try-{verb}", f"{verb}trylock", key(name), 0)
        if answer.startswith("false "):
            found.append(verb)
        else:
            java.obey(f"try-{verb}", f"{verb}unlock", key(name))
    return found


@pytest.mark.parametrize("side", ["read", "update", "write"])
def test_java_finds_each_side_of_ours_taken(
    side: str, java: Java, client: leaselock.Client
) -> None:
    name = f"java-{side}"
    with getattr(client.rwlock(name), side):
        assert refused(java, name) == list(VERBS)
    assert refused(java, name) == []


def test_java_finds_an_upgraded_lock_and_permits_taken(
    java: Java, client: leaselock.Client
) -> None:
    with client.rwlock("java-upgraded").update as lease:
        assert lease.upgrade(TIMEOUT)
        assert refused(java, "java-upgraded") == list(VERBS)
    with client.semaphore("java-permits", permits=2):
        assert refused(java, "java-permits") == list(VERBS)
    assert refused(java, "java-permits") == []


def test_the_release_of_the_last_reader_wakes_java(
    java: Java, client: leaselock.Client, server: Redis
) -> None:
    with client.rwlock("java-waits").read:
        waiting = java_waits(server, java, "a", "java-waits")
    waiting.result(TIMEOUT)
    java.obey("a", "unlock", key("java-waits"))


@pytest.mark.parametrize("verb", VERBS)
def test_python_finds_each_lock_of_java_taken(
    verb: str, java: Java, client: leaselock.Client
) -> None:
    name = f"python-{verb}"
    shared = client.rwlock(name)
    assert java.obey("a", f"{verb}trylock", key(name), 0).startswith("true ")
    for side in (shared.read, shared.update, shared.write):
        assert side.try_acquire() is None
    (holder,) = shared.read.holders()
    assert (holder.token, holder.mode) == (None, "exclusive")
    java.obey("a", f"{verb}unlock", key(name))
    with shared.read:
        pass
