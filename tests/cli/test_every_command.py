"""Each command as a user runs it: a process of its own, on each store, with its exit code."""

from __future__ import annotations

import shlex
import signal
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.redis import Redis
from tests.cli.processes import ended

from leaselock._cli.commands import ALIASES, COMMANDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.cli.processes import Shell

# In this order: words, and the exit code. TOKEN is what `acquire` has printed.
FIRST: list[tuple[str, int]] = [
    ("setup", 0),
    ("init --print", 0),
    ("run a -- sh -c 'exit 7'", 7),
    ("lead --once a -- sh -c 'exit 7'", 7),
    ("leader a", 1),
]
WITH_A_LEASE = [
    ("acquire --lease 1h b", 0),
    ("check b TOKEN", 0),
    ("extend --lease 2h b TOKEN", 0),
    ("ls --exit-code b", 0),
    ("show b", 0),
    ("run -n b true", 75),
    ("wait -w 0 b", 75),
    ("wait --until held b", 0),
    ("release b TOKEN", 0),
    ("release b TOKEN", 79),
    ("check b TOKEN", 79),
    ("acquire --lease 1h b", 0),
    ("break --yes -m test b", 0),
]
# Where a hold ends with its session.
WITHOUT_A_LEASE = [
    ("acquire --lease 1h b", 69),
    ("check b 1", 79),
    ("extend --lease 2h b 1", 79),
    ("ls --exit-code b", 1),
    ("show b", 0),
    ("release b 1", 79),
    ("break --yes -m test b", 1),
]
LAST = [
    ("wait b", 0),
    ("deadlocks", 0),
    ("gc", 0),
    ("doctor", 0),  # or 1: servers of tests keep nothing on disk, and need no login
    ("top", 64),
    ("completion bash", 0),
    ("help", 0),
    ("version", 0),
]
# These go on until a signal comes: their words, and a part of the line that they print first.
ENDLESS = {"watch b": '"event": "free"', "web --port 0": "http://127.0.0.1:"}
# The fixture of the server, and the URL of a store on it.
STORES: dict[str, Callable[[Any], str]] = {
    "sqlite": lambda shell: f"{shell.url}",
    "redis": lambda server: f"{server.url}",
    "postgres": lambda server: f"{server.url}",
    "etcd": lambda server: f"{server.url(prefix=uuid.uuid4().hex)}",
    "ensemble": lambda server: f"zookeeper://{server.hosts}/{uuid.uuid4().hex}",
    "mariadb": lambda server: f"{server.url}",
    "dynamodb": lambda server: f"{server.url(uuid.uuid4().hex)}",
    "object_store": lambda server: f"{server.url(uuid.uuid4().hex)}",
    "kubernetes": lambda server: f"{server.url(server.namespace())}",
}
HEAVY = ("mariadb", "dynamodb", "object_store", "kubernetes")


@pytest.fixture
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


@pytest.fixture
def sqlite(shell: Shell) -> Shell:
    return shell


@pytest.mark.parametrize(
    "store",
    [pytest.param(name, marks=[pytest.mark.heavy] * (name in HEAVY)) for name in STORES],
)
def test_each_command_ends_with_its_exit_code(
    store: str, shell: Shell, request: pytest.FixtureRequest
) -> None:
    shell.env["LEASELOCK_URL"] = STORES[store](request.getfixturevalue(store))
    token = ""
    ran = set()
    leases = WITHOUT_A_LEASE if store == "ensemble" else WITH_A_LEASE
    for line, code in FIRST + leases + LAST:
        command, *words = shlex.split(line.replace("TOKEN", token))
        ran.add(command)
        done = shell.process(command, *words)
        assert done.returncode in ((0, 1) if command == "doctor" else (code,)), (line, done)
        assert "Traceback" not in done.stderr, (line, done.stderr)
        if command == "acquire":
            token = done.stdout.strip()
    for line, first in ENDLESS.items():
        process = shell.start(*line.split())
        ran.add(line.split()[0])
        assert process.stdout is not None
        assert first in process.stdout.readline(), line
        process.send_signal(signal.SIGTERM)
        code = ended(process)
        assert code == (0 if line.startswith("web") else -signal.SIGTERM), line
    assert {ALIASES.get(each, each) for each in ran} == set(COMMANDS)
