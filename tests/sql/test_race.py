"""Many processes write one row at once: no write is lost, and each conflict is reported.

With LEASELOCK_INCREMENTS=500 each process writes 500 times on each database; otherwise on
PostgreSQL only.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.sql.places import Database

pytestmark = pytest.mark.heavy

# How many processes, and how often each.
SIZES = {"sqlite": (8, 50), "postgres": (20, 500), "mariadb": (8, 100)}
FULL = os.environ.get("LEASELOCK_INCREMENTS")


def test_no_increment_is_lost(database: Database) -> None:
    processes, times = (20, int(FULL)) if FULL else SIZES[database.kind]
    words = [sys.executable, str(Path(__file__).with_name("incrementer.py"))]
    running = [
        subprocess.Popen(
            [*words, database.kind, database.url, str(times)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(processes)
    ]
    try:
        for process in running:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        began = time.monotonic()
        conflicts = [int(process.communicate()[0]) for process in begun(running)]
        took = time.monotonic() - began
    finally:
        for process in running:
            process.kill()
            process.wait()
    assert [process.returncode for process in running] == [0] * processes
    assert database.row() == (100 + processes * times, 1 + processes * times, None)
    assert sum(conflicts) > 0
    print(
        f"\n{database.kind}: {processes} processes, {processes * times} increments, none lost, "
        f"{sum(conflicts)} conflicts, {took:.1f} s"
    )


def begun(running: list[subprocess.Popen[str]]) -> list[subprocess.Popen[str]]:
    """Start all of them before the end of any."""
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    return running
