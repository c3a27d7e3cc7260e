"""Forks of a process that has the SQLite file open: parent and child do not disturb each other."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from typing import TYPE_CHECKING

import pytest
from verification.models.process import Client, Process, heard

from leaselock._core.contract.backend import (
    WAKE_ALL,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.first_tier


# --- forks ----------------------------------------------------------------------------------------


def in_child(work: Callable[[], None]) -> int:
    """Fork a child that does *work* and ends with `os._exit`; return its exit code."""
    with warnings.catch_warnings():
        # The test is about a fork of a process with threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_forked_child_does_not_disturb_its_parent(
    path: Path, clients: Callable[[str], Client]
) -> None:
    here = clients("here")
    here.acquire("n")

    def work() -> None:
        here.store.after_fork()
        here.listener.after_fork()
        here.store.close()

    assert in_child(work) == 0
    with Process(path, "other") as other:
        assert other.order("acquire n") == "busy"
        here.release("n")
        assert other.order("acquire n").isdecimal()
        assert here.acquire("n", wait=True) is None
        other.kill()
        assert heard(here) == (WAKE_ALL,)


CLOSING_PARENT = """
import os, signal, sys
import leaselock

parent = leaselock.Client(sys.argv[1])
with parent.lock("m"):
    begun, go = os.pipe(), os.pipe()
signal.alarm(10)
if not os.fork():
    signal.alarm(10)
    client = parent if sys.argv[2] == "inherited" else leaselock.Client(sys.argv[1])
    with client.lock("other"):
        os.write(begun[1], b".")
    os.read(go[0], 1)
    lease = client.lock("n").acquire()
    os.write(begun[1], b".")
    os.read(go[0], 1)
    lease.ensure()
    os._exit(0)
os.read(begun[0], 1)
parent.close()
os.write(go[1], b".")
os.read(begun[0], 1)
print("child holds", flush=True)
sys.stdin.readline()
os.write(go[1], b".")
sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize("client", ["inherited", "fresh"])
def test_a_hold_of_a_forked_child_is_visible_to_all(
    client: str, path: Path, clients: Callable[[str], Client]
) -> None:
    program = [sys.executable, "-c", CLOSING_PARENT, f"sqlite:///{path}", client]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"child holds\n"
        token = clients("here").acquire("n")
        parent.communicate(b"\n")
    assert parent.returncode == 0
    assert token is None


BUSY_PARENT = """
import os, signal, sys, threading
import leaselock

client = leaselock.Client(sys.argv[1])
turns = threading.Semaphore(0)

def work(name):
    while True:
        with client.lock(name):
            turns.release()

for number in range(3):
    threading.Thread(target=work, args=(f"w{number}",), daemon=True).start()
failed = 0
for _ in range(30):
    for _ in range(10):
        turns.acquire()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            signal.alarm(2)
            code = leaselock.Client(sys.argv[1]).lock("x").try_acquire(timeout=0.5) is None
        finally:
            os._exit(code)
    failed += os.wait()[1] != 0
print(failed, flush=True)
os._exit(0)
"""


# Not strict: sometimes no fork happens during a transaction.
def test_a_fork_during_requests_of_other_threads_leaves_a_usable_child(path: Path) -> None:
    program = [sys.executable, "-W", "ignore", "-c", BUSY_PARENT, f"sqlite:///{path}"]
    run = subprocess.run(program, capture_output=True, text=True, check=True)
    assert run.stdout == "0\n", run.stderr[-1000:]
