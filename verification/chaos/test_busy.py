"""A holder without a processor or without the GIL cannot renew, and learns of its loss."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack

import pytest
from testkit.servers.redis import Redis

import leaselock

HOGS = 3
# It only bounds a failure: the holder is starved within some renewals.
TIMEOUT = 60.0
HOLDER = """
import os, sys, time, leaselock
os.sched_setaffinity(0, {int(sys.argv[2])})
os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
lease = leaselock.Client(sys.argv[1]).lock("a", lease=0.3).acquire()
valid_at = time.monotonic()
if lease.lost:
    sys.exit("lost before it began")
print("held", flush=True)
sys.stdin.readline()
while sys.stdin not in __import__("select").select([sys.stdin], [], [], 0.0)[0]:
    now = time.monotonic()
    if lease.lost:
        break
    valid_at = now
print(valid_at, flush=True)
"""
CALLING = """
import ctypes, os, sys, leaselock
lease = leaselock.Client(sys.argv[1]).lock("a", lease=0.3).acquire()
print("held", flush=True)
ctypes.PyDLL(None).usleep(900_000)
print(lease.lost, flush=True)
os._exit(0)
"""
HOG = "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])})\nwhile True: pass"


@pytest.mark.skipif(not hasattr(os, "SCHED_IDLE"), reason="SCHED_IDLE is specific to Linux")
def test_starved_holder_considers_its_lease_lost_in_time() -> None:
    """The holder runs only when no other process wants the processor (hazard C13)."""
    core = str(max(os.sched_getaffinity(0)))
    with ExitStack() as stack, Redis() as server:

        def start(*words: str) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", *words, core]
            pipe = subprocess.PIPE
            started = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
            stack.callback(started.communicate)
            stack.callback(started.kill)
            return started

        holder = start(HOLDER, server.url)
        assert holder.stdin is not None
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        hogs = [start(HOG) for _ in range(HOGS)]
        holder.stdin.write("go\n")
        holder.stdin.flush()
        with leaselock.Client(server.url) as client:
            client.lock("a").acquire(timeout=TIMEOUT)
            granted = time.monotonic()
            for hog in hogs:
                hog.kill()
            holder.stdin.write("enough\n")
            holder.stdin.flush()
            valid_at = float(holder.stdout.readline())
            assert 0.0 < valid_at < granted


def test_call_that_keeps_the_gil_loses_the_lease_and_learns_it() -> None:
    """Calls through PyDLL keep the GIL, so no other Python code runs (hazard C1)."""
    with Redis() as server, leaselock.Client(server.url) as client:
        command = [sys.executable, "-c", CALLING, server.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == "held\n"
            client.lock("a").acquire(timeout=30.0)
            assert holder.stdout.readline() == "True\n"
