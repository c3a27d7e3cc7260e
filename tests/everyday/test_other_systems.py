"""The stores on servers work without what only Unix has: shown by hiding it in a process.

This is no test on Windows. It shows that no module outside of the embedded store needs these names
to be imported, and that threads and asyncio do their work without them.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
from typing import TYPE_CHECKING

from leaselock._backends.readiness import POLLIN, POLLOUT, SelectPoller

if TYPE_CHECKING:
    from testkit.servers.postgres import Postgres
    from testkit.servers.redis import Redis

# The libraries are imported first: what they need of the system is their affair.
HIDE = """
import sys, os, select, time, asyncio, subprocess, socket, signal, ssl, logging, uuid, tempfile
import redis, redis.asyncio, hiredis, psycopg, kazoo.client, pymysql, multiprocessing
for module in ("fcntl", "pwd", "resource"):
    sys.modules[module] = None
for owner, names in {
    select: "poll epoll POLLIN POLLOUT",
    os: "fork register_at_fork uname getuid geteuid mkfifo",
    time: "clock_gettime CLOCK_BOOTTIME CLOCK_MONOTONIC",
}.items():
    for name in names.split():
        vars(owner).pop(name, None)
"""
OF_THE_PAGE = """
import textual.app, textual.widgets, uvicorn, starlette.applications, sqlalchemy, prometheus_client
import uvicorn.protocols.http.h11_impl, concurrent.futures, pytest
"""
IMPORT = """
sys.platform = "win32"
import importlib, pkgutil, leaselock
for found in pkgutil.walk_packages(leaselock.__path__, "leaselock."):
    if not found.name.startswith(("leaselock._backends.sqlite", "leaselock.contrib")):
        if not found.name.endswith("__main__"):
            importlib.import_module(found.name)
"""
USE = """
import leaselock
url = sys.argv[1]
with leaselock.Client(url) as client, leaselock.Client(url) as other:
    with client.lock("a", timeout=10) as lease:
        assert other.lock("a").try_acquire() is None
        lease.ensure()
    with other.lock("a", timeout=10):
        pass

async def main():
    async with leaselock.AsyncClient(url) as client, client.lock("a", timeout=10) as lease:
        lease.ensure()

asyncio.run(main())
"""


def run(program: str, *arguments: str, first: str = "") -> None:
    """Run a program in a process that lacks the names."""
    done = subprocess.run(
        [sys.executable, "-c", first + HIDE + program, *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_modules_can_be_imported() -> None:
    run(IMPORT, first=OF_THE_PAGE)


def test_locks_in_memory() -> None:
    run(USE, "memory://hidden")


def test_locks_on_redis(redis: Redis) -> None:
    run(USE, redis.url)


def test_select_poller_reports_what_poll_reports() -> None:
    reader, writer = os.pipe()
    try:
        for poller in (select.poll(), SelectPoller()):
            poller.register(reader, POLLIN)
            assert poller.poll(0) == []
            os.write(writer, b"x")
            assert poller.poll(10_000) == [(reader, POLLIN)]
            poller.register(writer, POLLOUT)
            assert sorted(poller.poll(None)) == sorted([(reader, POLLIN), (writer, POLLOUT)])
            os.read(reader, 1)
    finally:
        os.close(reader)
        os.close(writer)


def test_locks_in_a_database(postgres: Postgres) -> None:
    run(USE, postgres.url)
