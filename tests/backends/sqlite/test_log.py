"""A process that opens the lock file by other means, whereupon the kernel drops SQLite's locks."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

import leaselock
from leaselock._backends.sqlite.file import RECHECK_INTERVAL

if TYPE_CHECKING:
    from pathlib import Path

OTHER = """
import leaselock, sys
with leaselock.Client(sys.argv[1]) as client, client.lock("other"):
    pass
"""


def another_comes_and_goes(url: str) -> None:
    subprocess.run([sys.executable, "-c", OTHER, url], check=True)


def test_a_log_removed_while_in_use_is_detected(tmp_path: Path) -> None:
    """POSIX: closing any descriptor of a file ends all locks that the process has on it. The next
    client to go then takes itself for the last one, and removes the log (hazard K2).
    """
    path = tmp_path / "locks.db"
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client:
        with client.lock("a"):
            pass
        path.read_bytes()
        another_comes_and_goes(url)
        time.sleep(2 * RECHECK_INTERVAL)  # what was looked at a moment ago is not looked at again
        with pytest.raises(leaselock.NotApplied, match="removed or replaced while it was in use"):
            client.lock("a").acquire(timeout=0)


def test_an_unchanged_log_is_accepted(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    with leaselock.Client(url) as client:
        for _ in range(3):
            with client.lock("a"):
                pass
            another_comes_and_goes(url)
            time.sleep(2 * RECHECK_INTERVAL)
        with client.lock("a") as lease:
            lease.ensure()


def test_opening_a_file_writes_nothing(tmp_path: Path) -> None:
    """A write that begins the log waits for the disk."""
    path = tmp_path / "locks.db"
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client:
        client.lock("a").acquire().release()
    with leaselock.Client(url) as client:
        assert client.lock("a").holder() is None
        assert path.with_name("locks.db-wal").stat().st_size == 0
