"""A disk that loses data, and one that fails: tokens increase, and errors are the library's."""

from __future__ import annotations

import re
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from verification.models.test_sqlite_files import OTHER_BOOT

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.first_tier

FAILING = """
import resource, signal, sys, leaselock
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
path = sys.argv[1]
with leaselock.Client(f"sqlite:///{path}", op_timeout=0.2) as client:
    lease = client.lock("held").acquire()
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    words = "nothing was refused"
    for number in range(300):
        try:
            client.lock(f"{number} {'x' * 200}").acquire(timeout=0.0).release()
        except (leaselock.StoreError, leaselock.LeaseLost) as error:
            words = str(error.__cause__ if isinstance(error, leaselock.LeaseLost) else error)
            break
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    lease.ensure()
    lease.release()
    again = client.lock("held").acquire(timeout=10.0)
    print(again.token > lease.token, words)
"""


def test_tokens_keep_growing_after_a_power_failure(tmp_path: Path) -> None:
    """After a boot, the file and its log are in the state of some commits ago (hazard K6)."""
    path, before = tmp_path / "locks.db", tmp_path / "before.db"
    tokens = [taken(path)]
    with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(before)) as then:
        now.backup(then)
    tokens += [taken(path), taken(path)]
    for file in tmp_path.glob("locks.db?*"):
        shutil.rmtree(file) if file.is_dir() else file.unlink()
    before.replace(path)
    statement, *words = OTHER_BOOT
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement, words)
        database.commit()
    tokens += [taken(path)]
    assert tokens == sorted(set(tokens))


def taken(path: Path) -> int:
    """Acquire and release the lock in another process; return its token."""
    words = "import sys, leaselock; print(leaselock.Client(sys.argv[1]).lock('a').acquire().token)"
    output = subprocess.check_output([sys.executable, "-c", words, f"sqlite:///{path}"])
    return int(output)


def test_a_failing_disk_is_reported_and_loses_nothing(tmp_path: Path) -> None:
    """A limit of the file size looks like a disk error to SQLite (hazard K7)."""
    words = [sys.executable, "-c", FAILING, str(tmp_path / "locks.db"), str(64 * 1024)]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert result.stderr == ""
    assert re.match(r"True .*locks\.db: disk I/O error", result.stdout)
