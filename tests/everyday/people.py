"""What a person has: the command, a Python program of their own, and a server."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import leaselock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.servers.redis import Redis

# Longer than anything here takes; a test that reaches it has failed.
LIMIT = 60.0
COMMAND = (sys.executable, "-m", "leaselock")
# Where this test finds the library, however it was installed.
SOURCE = str(Path(leaselock.__file__).resolve().parents[1])


def environment(env: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """Our own environment without any store; a variable that is None is removed."""
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


def key_of(redis: Redis, name: str) -> str:
    """The key of the lock *name*, found while a client of ours holds it."""
    with leaselock.Client(redis.url) as client, client.lock(name):
        keys = [key for key in redis.ask("KEYS", "*") if redis.ask("TYPE", key) == "hash"]
        (key,) = (key for key in keys if key == name or key.endswith(f":{name}"))
    return str(key)
