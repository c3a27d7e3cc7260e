"""run --on-outage on a real server that is down: fail, or wait for it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import Shell, ended

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOW = 'echo "$LEASELOCK_TOKEN"'


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


TRIES = (
    ("run", "-n", "a", "true"),
    ("run", "--once-per", "1d", "a", "true"),
    ("run", "--once-per", "1d", "--on-error", "retry", "a", "true"),
    ("run", "-n", "--with", "b", "a", "true"),
    ("run", "-n", "--slots", "2", "a", "true"),
    ("acquire", "-n", "a"),
    ("wait", "-w", "0", "a"),
)


@pytest.mark.parametrize(
    ("words", "frozen"), [*((words, False) for words in TRIES), (TRIES[0], True), (TRIES[1], True)]
)
def test_a_try_waits_for_the_store_as_long_as_any_request(
    shell: Shell, server: Redis, words: tuple[str, ...], frozen: bool
) -> None:
    """It does not wait for a holder only: a failover shorter than --op-timeout fails no job."""
    if frozen:
        server.start()
        server.pause()
    limit = 1.6
    began = time.monotonic()
    done = shell.run(words[0], "--op-timeout", f"{limit}s", *words[1:])
    assert done.returncode == 69
    assert time.monotonic() - began >= limit


def test_it_waits_for_the_store(shell: Shell, server: Redis) -> None:
    patience = ("--on-outage", "wait", "--outage-timeout", "1h")
    process = shell.start("run", *patience, "-n", "a", "--", "sh", "-c", SHOW)
    errors = process.stderr
    assert errors is not None
    assert "waiting for the store of 'a': " in errors.readline()
    server.start()
    assert ended(process) == 0
    assert process.stdout is not None
    assert int(process.stdout.read()) > 0


def test_a_store_that_answers_is_obeyed(shell: Shell, server: Redis) -> None:
    server.start()
    with leaselock.Client(server.url) as client, client.lock("a"):
        policy = ("--on-outage", "wait", "--outage-timeout", "1h", "-n")
        assert shell.run("run", *policy, "a", "--", "true").returncode == 75


def test_usage(shell: Shell) -> None:
    for words in (["wait"], ["unlocked"], ["fail", "--outage-timeout", "5s"]):
        done = shell.run("run", "--on-outage", *words, "a", "--", "true")
        assert done.returncode == 64
        assert "--on-outage" in done.stderr
        assert "outage_timeout" not in done.stderr


def test_the_error_of_a_dead_store_is_told_once(shell: Shell, server: Redis) -> None:
    """Also where it takes so long that the wait is reported meanwhile."""
    server.start()
    server.pause()
    try:
        words = ("--op-timeout", "3s", "run", "a", "--", "true")
        done = shell.run(*words)
    finally:
        server.cont()
    assert done.returncode == 69
    assert done.stderr.count("leaselock doctor") == 1
    *waiting, error = done.stderr.splitlines()
    assert all(line.endswith("does not answer") for line in waiting)
    assert "'a' in redis://" in error
