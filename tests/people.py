"""Helpers that run the command and Python programs as a user does."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testkit.servers.process import Process, eventually

import leaselock

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from testkit.servers.redis import Redis

# Longer than any operation here; a test that reaches it has failed.
LIMIT = 60.0
COMMAND = (sys.executable, "-m", "leaselock")
# The path from which this test imports the library.
SOURCE = str(Path(leaselock.__file__).resolve().parents[1])
# A program whose client has as many waiters as its argument says.
WAITERS = """
import os, sys, threading, leaselock
client = leaselock.Client(os.environ["LEASELOCK_URL"])
for _ in range(int(sys.argv[1])):
    threading.Thread(target=lambda: client.lock("a").acquire(), daemon=True).start()
threading.Event().wait()
"""


def environment(env: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Return this environment without a store; a variable that is None is removed."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("LEASELOCK")}
    path = [SOURCE, *filter(None, [own.get("PYTHONPATH")])]
    merged: dict[str, str | None] = {**own, "PYTHONPATH": os.pathsep.join(path), **(env or {})}
    return {name: value for name, value in merged.items() if value is not None}


def command(
    *words: str, url: str | None = None, env: Mapping[str, str | None] | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run ``leaselock`` to its end."""
    return program(COMMAND, *words, url=url, env=env, **options)


def script(
    text: str, *words: str, url: str | None = None, flags: tuple[str, ...] = (), **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a Python program to its end."""
    start = (sys.executable, *flags, "-c", textwrap.dedent(text))
    return program(start, *words, url=url, **options)


def program(
    start: tuple[str, ...],
    *words: str,
    url: str | None,
    env: Mapping[str, str | None] | None = None,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, with *url* as $LEASELOCK_URL."""
    store = {} if url is None else {"LEASELOCK_URL": url}
    return subprocess.run(
        [*start, *words],
        env=environment({**store, **(env or {})}),
        text=True,
        check=False,
        **{"capture_output": True, "timeout": LIMIT, "stdin": subprocess.DEVNULL, **options},
    )


@contextmanager
def running(folder: Path, text: str, url: str, *words: str) -> Iterator[Process]:
    """Run a Python program, which is killed at the end."""
    variables = [f"{k}={v}" for k, v in environment({"LEASELOCK_URL": url}).items()]
    log = folder / f"log{time.monotonic_ns()}"
    process = Process(["env", "-i", *variables, sys.executable, "-c", text, *words], log)
    try:
        yield process
    finally:
        process.kill()


def waiting(url: str, count: int) -> None:
    """Return when *count* clients wait for the lock "a"."""
    with leaselock.Client(url) as client:
        eventually(lambda: len(client.lock("a").waiters()) >= count)


def got(lock: leaselock.Lock) -> float:
    """Acquire and release a lock; return the time of the grant."""
    with lock:
        return time.monotonic()


def use(url: str, count: int) -> dict[str, int]:
    """Acquire and release *count* locks; return their tokens."""
    tokens = {}
    with leaselock.Client(url) as client:
        for number in range(count):
            with client.lock(f"order:{number}") as lease:
                tokens[lease.name] = lease.token
    return tokens


def key_of(redis: Redis, name: str) -> str:
    """Return the key of the lock *name*, found while a client holds it."""
    with leaselock.Client(redis.url) as client, client.lock(name):
        keys = [key for key in redis.ask("KEYS", "*") if redis.ask("TYPE", key) == "hash"]
        (key,) = (key for key in keys if key == name or key.endswith(f":{name}"))
    return str(key)
