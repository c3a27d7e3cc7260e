"""What is printed when an error ends a program."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import closed_port, eventually
from tests.people import LIMIT, environment, script

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.servers.redis import Redis

# Each call takes as long: the server is asked again until then.
DEAD = """
import os, leaselock
client = leaselock.Client(os.environ["LEASELOCK_URL"], op_timeout=0.2)
{call}
"""
AIO = """
import asyncio, os, leaselock
async def main():
    async with leaselock.AsyncClient(os.environ["LEASELOCK_URL"], op_timeout=0.2) as client:
        {call}
asyncio.run(main())
"""
CALLS = {
    "acquire": "client.lock('a').acquire()",
    "with": "client.lock('a').__enter__()",
    "holder": "client.lock('a').holder()",
    "locks": "client.locks()",
}
# How the traceback begins: with the error of the library, or of the system where kazoo has none.
CAUSES = {
    "redis": "redis.exceptions.ConnectionError: ",
    "postgresql": "psycopg.OperationalError: ",
    "zookeeper": "ConnectionRefusedError: ",
}
# Each server with two of the calls, and each call with one server or two, in the first tier.
DEAD_SERVERS = [
    pytest.param(scheme, call, marks=pytest.mark.variant if (n + m) % 2 else ())
    for n, scheme in enumerate(("redis", "postgresql", "zookeeper"))
    for m, call in enumerate(CALLS)
]


def ours(text: str) -> list[str]:
    """The lines of a traceback that are inside this library or one below it."""
    frames = re.findall(r'File "([^"]+)"', text)
    return [f for f in frames if "<string>" not in f and "/asyncio/" not in f]


@pytest.mark.parametrize(("scheme", "call"), DEAD_SERVERS)
def test_dead_server_shows_two_lines_of_ours(scheme: str, call: str) -> None:
    path = "0" if scheme == "redis" else "a"
    with closed_port() as port:
        url = f"{scheme}://127.0.0.1:{port}/{path}"
        text = script(DEAD.format(call=CALLS[call]), url=url).stderr
    assert "During handling" not in text, text
    # The error of the client library is shown as the cause, in a line without frames.
    assert text.startswith(CAUSES[scheme]), text
    assert len(ours(text)) <= 2, text
    last = text.splitlines()[-1]
    assert re.match(r"leaselock\.(StoreUnreachable|OutcomeUnknown): ", last), text


@pytest.mark.parametrize("call", CALLS)
def test_dead_server_in_asyncio_shows_two_lines_of_ours(call: str) -> None:
    words = CALLS[call].replace("__enter__", "__aenter__")
    with closed_port() as port:
        url = f"redis://127.0.0.1:{port}/0"
        text = script(AIO.format(call=f"await {words}"), url=url).stderr
    assert "During handling" not in text, text
    assert len(ours(text)) <= 2, text
    assert text.startswith(CAUSES["redis"]), text
    assert text.splitlines()[-1].startswith("leaselock.StoreUnreachable: "), text


WAITING = """
import os, leaselock
client = leaselock.Client(os.environ["LEASELOCK_URL"])
client.lock("a").acquire()
"""


@pytest.mark.parametrize("store", ["redis", "sqlite"])
def test_interrupted_wait_shows_two_lines_of_ours(redis: Redis, tmp_path: Path, store: str) -> None:
    url = redis.url if store == "redis" else f"sqlite:///{tmp_path}/locks.db"
    with leaselock.Client(url) as client, client.lock("a") as held:
        waiting = subprocess.Popen(
            [sys.executable, "-c", WAITING],
            env=environment({"LEASELOCK_URL": url}),
            stderr=subprocess.PIPE,
            text=True,
        )
        eventually(lambda: client.lock("a").waiters())
        os.kill(waiting.pid, signal.SIGINT)
        _, text = waiting.communicate(timeout=LIMIT)
        held.ensure()
    assert "During handling" not in text, text
    assert len(ours(text)) <= 2, text
    assert text.splitlines()[-1] == "KeyboardInterrupt", text
