"""run --on-outage on a real server that is down: fail, wait for it, or run without the lock."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import Shell, ended, until

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOW = 'echo "$LEASELOCK_TOKEN ${LEASELOCK_UNLOCKED-locked}"'


@pytest.fixture
def server(shell: Shell) -> Iterator[Redis]:
    """A server that is down, and was up: its port is known."""
    with Redis() as redis:
        shell.env["LEASELOCK_URL"] = redis.url
        redis.kill()
        yield redis


def test_it_fails_by_default(shell: Shell, server: Redis) -> None:
    done = shell.run("run", "--op-timeout", "2s", "a", "--", "sh", "-c", SHOW)
    assert (done.returncode, done.stdout) == (69, "")


def test_it_waits_for_the_store(shell: Shell, server: Redis) -> None:
    patience = ("--on-outage", "wait", "--outage-timeout", "1h")
    process = shell.start("run", *patience, "-n", "a", "--", "sh", "-c", SHOW)
    errors = process.stderr
    assert errors is not None
    assert "waiting for the store of 'a': " in errors.readline()
    server.start()
    assert ended(process) == 0
    assert process.stdout is not None
    token, state = process.stdout.read().split()
    assert (int(token) > 0, state) == (True, "locked")


def test_it_runs_without_the_lock(shell: Shell, server: Redis) -> None:
    policy = ("--on-outage", "unlocked", "--op-timeout", "2s", "--json")
    for kind in ([], ["--shared"], ["--slots", "2"]):
        done = shell.run("run", *policy, *kind, "a", "--", "sh", "-c", SHOW)
        assert (done.returncode, done.stdout) == (0, "0 1\n")
        *_, told, document = done.stderr.splitlines()
        assert "running WITHOUT the lock 'a'" in told
        assert (json.loads(document)["unlocked"], json.loads(document)["token"]) == (True, 0)


def test_a_store_that_answers_is_obeyed(shell: Shell, server: Redis) -> None:
    server.start()
    with leaselock.Client(server.url) as client, client.lock("a"):
        policy = ("--on-outage", "unlocked", "-n")
        assert shell.run("run", *policy, "a", "--", "true").returncode == 75


def test_usage(shell: Shell) -> None:
    for words in (["wait"], ["fail", "--outage-timeout", "5s"]):
        assert shell.run("run", "--on-outage", *words, "a", "--", "true").returncode == 64


def test_a_program_goes_on_without_the_lock_and_says_so(server: Redis) -> None:
    with leaselock.Client(server.url, op_timeout=1.0) as client:
        kinds: list[str] = []
        client.on_event(lambda event: kinds.append(event.kind))

        @client.guard("a:{n}", on_outage="unlocked")
        def double(n: int) -> int:
            return 2 * n

        assert double(4) == 8
        assert kinds == ["acquiring", "unlocked"]
        lock = client.lock("a", on_outage="unlocked")
        with lock as lease:
            assert "not locked: the store was out of reach" in repr(lease)
            assert "held" not in repr(lock)
        server.start()
        with lock as lease:
            assert not lease.unlocked
        until(lambda: client.lock("a").holder() is None)
