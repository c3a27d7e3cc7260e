"""The literature's reentrant pair of scripts, as its readers run it: by the real redis-cli."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import program

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

pytestmark = pytest.mark.nightly

SCRIPTS = Path(__file__).parents[2] / "docs/stores/literature"
KEY = "lock:user:123456"


def evaluated(server: Redis, script: str, *arguments: str) -> str:
    """What redis-cli prints for a person."""
    command = [program("redis-cli"), "--no-raw", "-p", str(server.port)]
    command += ["--eval", str(SCRIPTS / f"{script}.lua"), KEY, ",", *arguments]
    return subprocess.check_output(command, text=True).strip()


def test_the_transcript(server: Redis) -> None:
    assert evaluated(server, "acquire", "thread-x", "30") == "(integer) 1"
    assert evaluated(server, "acquire", "thread-x", "30") == "(integer) 1"
    assert evaluated(server, "acquire", "thread-y", "30") == "(integer) 0"
    assert server.ask("HGETALL", KEY) == ["thread-x", "2"]
    assert 25 < server.ask("TTL", KEY) <= 30
    assert evaluated(server, "release", "thread-y") == "(nil)"
    assert evaluated(server, "release", "thread-x") == "(integer) 1"
    assert server.ask("HGETALL", KEY) == ["thread-x", "1"]
    assert evaluated(server, "release", "thread-x") == "(integer) 1"
    assert server.ask("EXISTS", KEY) == 0
    assert evaluated(server, "release", "thread-x") == "(nil)"


def test_the_time_is_in_seconds_and_restarts(server: Redis) -> None:
    evaluated(server, "acquire", "thread-x", "30")
    evaluated(server, "acquire", "thread-x", "90")
    assert 85 < server.ask("TTL", KEY) <= 90
    evaluated(server, "release", "thread-x")
    assert 85 < server.ask("TTL", KEY) <= 90
    evaluated(server, "acquire", "thread-x", "90")
    evaluated(server, "release", "thread-x", "30")
    assert 25 < server.ask("TTL", KEY) <= 30
    evaluated(server, "release", "thread-x")
    assert server.ask("EXISTS", KEY) == 0
