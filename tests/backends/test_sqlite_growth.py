"""What is left in a SQLite file: of crashed holders, of its size, and of other programs' tables."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.process import eventually

import leaselock
from leaselock._backends.sqlite.database import APPLICATION_ID
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from pathlib import Path

NAMES = 1000
CRASH = """
import os, sys, leaselock
client = leaselock.Client(sys.argv[1])
for number in range(int(sys.argv[2])):
    lease = client.lock(f"crashed {number}", lease=60).acquire()
print(lease.token, flush=True)
os._exit(1)
"""


def crash(url: str, names: int) -> int:
    """Acquire that many locks in a process that dies; return the last token."""
    command = [sys.executable, "-W", "ignore", "-c", CRASH, url, str(names)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, check=False).stdout)


def query(path: Path, statement: str) -> list[Any]:
    """Ask in another process: closing the file in this one would release its locks."""
    program = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]);"
        "print(d.execute(sys.argv[2]).fetchall()); d.commit(); d.close()"
    )
    command = [sys.executable, "-c", program, str(path), statement]
    shown = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout
    found: list[Any] = eval(shown)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "locks.db"


def test_gc_collects_crashed_holders_and_returns_their_space(path: Path) -> None:
    url = f"sqlite:///{path}?token_ttl=0.2"
    last = crash(url, NAMES)
    died = time.monotonic()
    query(path, "PRAGMA wal_checkpoint(TRUNCATE)")
    full = path.stat().st_size
    eventually(lambda: time.monotonic() - died > 0.3)
    with leaselock.Client(url) as client, client.lock("held") as held:
        assert client.gc() == NAMES
        assert query(path, "SELECT name FROM lock") == [("held",)]
        assert path.stat().st_size < full / 10
        held.ensure()
        with client.lock("crashed 0") as lease:
            assert lease.token > last


def test_gc_counts_the_crashed_holders_whose_names_are_kept(path: Path) -> None:
    """In several steps, and once only."""
    url = f"sqlite:///{path}"
    crash(url, NAMES)
    assert len(query(path, "SELECT name FROM lock WHERE id IS NOT NULL")) == NAMES
    with leaselock.Client(url) as client, client.lock("held"):
        assert client.gc() == NAMES
        assert client.gc() == 0
        assert query(path, "SELECT name FROM lock WHERE id IS NOT NULL") == [("held",)]
    assert query(path, "SELECT count(*) FROM lock") == [(NAMES + 1,)]


def test_tokens_rise_above_those_of_collected_rows_when_the_clock_was_set_back(path: Path) -> None:
    url = f"sqlite:///{path}?token_ttl=0.2"
    crash(url, 1)
    future = 2**60
    query(path, f"UPDATE lock SET token = {future}, since = 0")
    with leaselock.Client(url) as client:
        assert client.gc() == 1
        with client.lock("crashed 0") as lease:
            assert lease.token > future


def test_gc_leaves_a_live_hold_alone_however_old(path: Path) -> None:
    url = f"sqlite:///{path}?token_ttl=0.2"
    with leaselock.Client(url) as client, leaselock.Client(url) as other, client.lock("a") as lease:
        query(path, "UPDATE lock SET since = 0")
        assert other.gc() == 0
        assert not other.lock("a").try_acquire()
        lease.ensure()


def test_a_file_of_an_earlier_version_goes_on_and_shrinks(path: Path) -> None:
    """It has no mark, and was created without auto_vacuum."""
    path.touch(0o600)
    query(path, "CREATE TABLE users (name TEXT)")
    query(path, "DROP TABLE users")
    url = f"sqlite:///{path}?token_ttl=0.2"
    crash(url, NAMES)
    query(path, "PRAGMA application_id = 0")
    full = path.stat().st_size
    assert query(path, "PRAGMA auto_vacuum") == [(0,)]
    query(path, "UPDATE lock SET since = 0")
    with leaselock.Client(url) as client:
        assert client.gc() == NAMES
        assert query(path, "PRAGMA auto_vacuum") == [(2,)]
        assert path.stat().st_size < full / 5
    assert query(path, "PRAGMA application_id") == [(APPLICATION_ID,)]


@pytest.mark.parametrize(
    "statement", ["CREATE TABLE users (name TEXT)", "PRAGMA application_id = 7"]
)
def test_the_database_of_another_program_is_refused_and_stays(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
        database.commit()
    path.chmod(0o600)
    before = path.read_bytes()
    with (
        leaselock.Client(f"sqlite:///{path}") as client,
        pytest.raises(NotApplied, match="the database of another program"),
    ):
        client.lock("a").acquire()
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_a_shared_database_of_an_earlier_version_goes_on_unmarked(path: Path) -> None:
    """An application and the locks may have shared a file before that was refused."""
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client, client.lock("a"):
        pass
    query(path, "PRAGMA application_id = 0")
    query(path, "CREATE TABLE users (name TEXT)")
    with leaselock.Client(url) as client, client.lock("a"):
        pass
    assert query(path, "PRAGMA application_id") == [(0,)]
