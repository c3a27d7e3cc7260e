"""The end of a client: by a signal handler, by the end of the interpreter."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testkit.servers.databases import emptied
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually
from tests.people import LIMIT, environment, script

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

NEVER_CLOSED = """
import asyncio, os, leaselock
client = leaselock.AsyncClient(os.environ["LEASELOCK_URL"])
kept = []

async def main():
    kept.append(await client.lock("a", lease=600).acquire())

asyncio.run(main())
"""


def url_of(store: str, request: pytest.FixtureRequest) -> str:
    """The URL of a server without locks."""
    server = request.getfixturevalue("ensemble" if store == "zookeeper" else store)
    if store == "zookeeper":
        return fresh(server)
    return str(server.url) if store == "redis" else emptied(server)


@pytest.mark.parametrize(
    "store",
    ["redis", "postgres", "mariadb", pytest.param("zookeeper", marks=pytest.mark.heavy)],
)
def test_asyncio_client_that_was_never_closed_releases_at_exit(
    store: str, request: pytest.FixtureRequest
) -> None:
    url = url_of(store, request)
    ended = script(NEVER_CLOSED, url=url)
    assert (ended.returncode, ended.stderr) == (0, ""), ended
    with leaselock.Client(url) as client:
        lease = client.lock("a").acquire(timeout=0)
        lease.release()


@pytest.mark.heavy
def test_asyncio_client_that_cannot_release_at_exit_warns(redis: Redis) -> None:
    program = f"{NEVER_CLOSED}\nos.kill({redis.running().popen.pid}, 9)"
    ended = script(program, url=redis.url)
    assert ended.returncode == 0, ended
    assert "ResourceWarning" in script(program, url=redis.url, flags=("-X", "dev")).stderr or (
        "'a'" in ended.stderr
    )


CLOSED_BY_A_HANDLER = """
import os, signal, sys, leaselock
client = leaselock.Client(os.environ["LEASELOCK_URL"], op_timeout=float(sys.argv[1]))
client.lock("warm").acquire().release()

def handler(*_):
    client.close()
    print("closed", flush=True)
    sys.exit(0)

signal.signal(signal.SIGTERM, handler)
print("ready", flush=True)
sys.stdin.readline()
client.lock("a").acquire()
print("acquired")
"""


def test_close_in_a_signal_handler_ends_a_call_of_the_same_thread(tmp_path: Path) -> None:
    """The thread is in the middle of a request to the file, which another process keeps busy."""
    file = tmp_path / "locks.db"
    url = f"sqlite:///{file}"
    with leaselock.Client(url) as client, client.lock("made"):
        pass
    process = subprocess.Popen(
        [sys.executable, "-c", CLOSED_BY_A_HANDLER, "1"],
        env=environment({"LEASELOCK_URL": url}),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    busy = sqlite3.connect(file, isolation_level=None)
    try:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == "ready\n"
        busy.execute("BEGIN IMMEDIATE")
        process.stdin.write("go\n")
        process.stdin.flush()
        # The interpreter is inside of the call as soon as it waits for the file again and again.
        switches = _switches(process.pid)
        eventually(lambda: _switches(process.pid) > switches + 20)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT)
    finally:
        busy.close()
        process.kill()
    assert (out, process.returncode) == ("closed\n", 0), err


def _switches(pid: int) -> int:
    """How often a process has begun to wait."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        lines = dict(line.split(":", 1) for line in status)
    return int(lines["voluntary_ctxt_switches"])


@pytest.mark.parametrize("store", ["sqlite", pytest.param("redis", marks=pytest.mark.heavy)])
def test_close_in_a_signal_handler_ends_a_wait(redis: Redis, tmp_path: Path, store: str) -> None:
    url = redis.url if store == "redis" else f"sqlite:///{tmp_path}/locks.db"
    with leaselock.Client(url) as client, client.lock("a"):
        process = subprocess.Popen(
            [sys.executable, "-c", CLOSED_BY_A_HANDLER, "1"],
            env=environment({"LEASELOCK_URL": url}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: client.lock("a").waiters())
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=LIMIT)
        assert (out.split(), process.returncode) == (["ready", "closed"], 0), err
        assert client.lock("a").waiters() == []
