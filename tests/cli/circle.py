"""Processes that wait for one another: each holds a lock, and waits for that of the next one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cli.processes import Shell

PROGRAM = """
import sys, leaselock
first, second, timeout = sys.argv[1:]
with leaselock.Client(deadlock_timeout=float(timeout) or None) as client:
    try:
        with client.lock(first):
            print("held", flush=True)
            sys.stdin.readline()
            with client.lock(second):
                print("both", flush=True)
    except leaselock.LeaseLost:
        print("lost", flush=True)
    except leaselock.DeadlockDetected as error:
        print("deadlock", error, flush=True)
"""


def circle(shell: Shell, *names: str, timeout: float = 0.0) -> list[subprocess.Popen[str]]:
    """Start one process for each name, and have them wait for one another."""
    processes = holders(shell, *names, timeout=timeout)
    close(processes)
    return processes


def holders(shell: Shell, *names: str, timeout: float = 0.0) -> list[subprocess.Popen[str]]:
    """Start one process for each name, which it holds. With *timeout* they search for deadlocks."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, first, second, str(timeout)],
            env=shell.env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for first, second in zip(names, names[1:] + names[:1], strict=True)
    ]
    shell.started += processes
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
    return processes


def close(processes: list[subprocess.Popen[str]]) -> None:
    """Have each process wait for the lock of the next one."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
