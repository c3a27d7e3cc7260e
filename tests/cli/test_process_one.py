"""`leaselock` as process 1 of a container, here of a PID namespace: it reaps what it inherits."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import program
from tests.cli.processes import LEASELOCK, LIMIT, Shell, ended, until

import leaselock

if TYPE_CHECKING:
    from collections.abc import Sequence

COUNT = 200
# Makes orphans, each of which says its number once process 1 has inherited it, and ends. The
# program ends when no orphan is left, not even as a zombie: it fails if that takes too long.
ORPHANS = f"""
import os, sys, time

reader, writer = os.pipe()
for _ in range({COUNT}):
    if not (parent := os.fork()):
        if os.fork():
            os._exit(0)
        while os.getppid() != 1:
            time.sleep(0.001)
        os.write(writer, os.getpid().to_bytes(4, "big"))
        os._exit(0)
    os.waitpid(parent, 0)
os.close(writer)
numbers = open(reader, "rb").read()
left = [int.from_bytes(numbers[i:i + 4], "big") for i in range(0, len(numbers), 4)]
assert len(left) == {COUNT}

def exists(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True

limit = time.monotonic() + {LIMIT / 4}
while left := [number for number in left if exists(number)]:
    if time.monotonic() > limit:
        sys.exit(f"{{len(left)}} zombies of {COUNT} orphans")
    time.sleep(0.005)
print("none left")
"""


@pytest.fixture
def container() -> list[str]:
    """The words that run a program as process 1 of a PID namespace."""
    words = [program("unshare"), "--pid", "--fork", "--kill-child", "--mount-proc"]
    words += [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    ran = subprocess.run([*words, "true"], capture_output=True, text=True, check=False)
    if ran.returncode:
        pytest.skip(f"no server: no PID namespaces here: {ran.stderr.strip()}")
    return words


def inside(shell: Shell, container: Sequence[str], *words: str) -> subprocess.Popen[str]:
    """Start ``leaselock`` as process 1."""
    process = subprocess.Popen(
        [*container, *LEASELOCK, *words],
        env=shell.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    shell.started.append(process)
    return process


def test_orphans_of_the_command_are_reaped(shell: Shell, container: list[str]) -> None:
    process = inside(shell, container, "run", "a", "--", sys.executable, "-c", ORPHANS)
    out, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, errors) == (0, "none left\n", "")


def test_orphans_are_reaped_while_it_waits(shell: Shell, container: list[str]) -> None:
    """Those of a program that entered the container, as `docker exec` and probes do."""
    with leaselock.Client(shell.url) as client, client.lock("a"):
        process = inside(shell, container, "run", "a", "--", "true")
        until(lambda: client.lock("a").waiters())
        first = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().strip()
        spaces = ["-p"] if os.geteuid() == 0 else ["-U", "-p"]
        entered = subprocess.run(
            [program("nsenter"), "-t", first, *spaces, "--", sys.executable, "-c", ORPHANS],
            capture_output=True,
            text=True,
            check=False,
        )
        assert (entered.returncode, entered.stdout, entered.stderr) == (0, "none left\n", "")
    assert ended(process) == 0


def test_the_exit_code_is_that_of_the_command(shell: Shell, container: list[str]) -> None:
    """Also when orphans have ended just before it, and live on after it."""
    script = "(true &); (sleep 60 &); exit 7"
    process = inside(shell, container, "run", "a", "--", "sh", "-c", script)
    assert ended(process) == 7
