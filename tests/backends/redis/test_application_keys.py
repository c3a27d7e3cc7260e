"""A key of the application that has the name of a lock's key."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from tests.people import command, key_of

import leaselock

if TYPE_CHECKING:
    from collections.abc import Callable

    from testkit.servers.redis import Redis

KINDS: dict[str, tuple[str, ...]] = {
    "string": ("SET", "KEY", "some text"),
    "mode": ("HSET", "KEY", "mode", "dark"),
    "list": ("RPUSH", "KEY", "1", "2"),
    "hash": ("HSET", "KEY", "customer", "17", "state", "paid"),
    "one field": ("HSET", "KEY", "customer", "17"),
    "set": ("SADD", "KEY", "1"),
}
CALLS: dict[str, Callable[[leaselock.Client], object]] = {
    "acquire": lambda client: client.lock("order:5").try_acquire(),
    "wait": lambda client: client.lock("order:5").try_acquire(timeout=60),
    "holder": lambda client: client.lock("order:5").holder(),
    "locked": lambda client: client.lock("order:5").locked(),
    "waiters": lambda client: client.lock("order:5").waiters(),
    "break_lock": lambda client: client.break_lock("order:5"),
    "break by token": lambda client: client.break_lock("order:5", token=1),
    "adopt": lambda client: client.adopt("order:5", 1),
}
COMMANDS = {
    "run": ("run", "-w", "2s", "order:5", "--", "true"),
    "run -n": ("run", "-n", "order:5", "--", "true"),
    "show": ("show", "order:5"),
    "check": ("check", "order:5", "--token", "1"),
    "acquire": ("acquire", "-n", "order:5"),
    "wait": ("wait", "-w", "2s", "order:5"),
    "break": ("break", "order:5", "--yes", "--reason", "test"),
}


def stored(redis: Redis, kind: str) -> tuple[str, str]:
    """The application's key, and what is in it."""
    key = key_of(redis, "order:5")
    words = [key if word == "KEY" else word for word in KINDS[kind]]
    redis.ask(*words)
    return key, str(redis.ask("OBJECT", "ENCODING", key))


def message(kind: str) -> str:
    """What every error says: the type that was found, that it is no lock, and what to do."""
    found = {"one field": "hash", "mode": "hash"}.get(kind, kind)
    return rf"order:5.*\b{found}\b.*is not a lock.*(another name|prefix)"


def wrong(said: str, kind: str) -> bool:
    """Whether the error does not say what it must."""
    return re.search(message(kind), said) is None


@pytest.mark.parametrize("kind", KINDS)
def test_every_call_says_that_the_key_is_not_a_lock(redis: Redis, kind: str) -> None:
    key, before = stored(redis, kind)
    answers = {}
    with leaselock.Client(redis.url) as client:
        for name, call in CALLS.items():
            try:
                answers[name] = repr(call(client))
            except leaselock.StoreError as error:
                answers[name] = str(error)
            except leaselock.LeaselockError as error:
                answers[name] = repr(error)
    assert {name: said for name, said in answers.items() if wrong(said, kind)} == {}
    assert redis.ask("OBJECT", "ENCODING", key) == before


@pytest.mark.heavy
@pytest.mark.parametrize("kind", ["list", "hash"])
def test_every_command_ends_with_78(redis: Redis, kind: str) -> None:
    key, before = stored(redis, kind)
    ended = {name: command(*words, url=redis.url) for name, words in COMMANDS.items()}
    assert {name: e.stderr for name, e in ended.items() if wrong(e.stderr, kind)} == {}
    assert {name: e.returncode for name, e in ended.items() if e.returncode != 78} == {}
    assert redis.ask("OBJECT", "ENCODING", key) == before


@pytest.mark.parametrize("kind", KINDS)
def test_key_of_the_application_survives_a_lock_of_its_name(redis: Redis, kind: str) -> None:
    """It has the name of the lock, and so not the lock's key."""
    words = ["order:5" if word == "KEY" else word for word in KINDS[kind]]
    redis.ask(*words)
    before = redis.ask("DEBUG", "DIGEST-VALUE", "order:5")
    with leaselock.Client(redis.url) as client:
        with client.lock("order:5"):
            assert client.lock("order:5").locked()
        client.break_lock("order:5")
    assert redis.ask("DEBUG", "DIGEST-VALUE", "order:5") == before
