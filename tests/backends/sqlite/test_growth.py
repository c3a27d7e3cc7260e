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
from leaselock._backends.sqlite.garbage import MOST_READ, MOST_WRITTEN, prune_some
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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


def test_gc_keeps_everything_when_the_url_says(path: Path) -> None:
    fill(path, 10, 0.0)
    with leaselock.Client(f"sqlite:///{path}?token_ttl=0") as client:
        assert client.gc() == 0


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


# --- many idle names ------------------------------------------------------------------------------

FILL = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.executemany(
    "INSERT INTO lock (name, token, since) VALUES (?, 1, ?)",
    ((f"idle {number}", float(sys.argv[3])) for number in range(int(sys.argv[2]))),
)
database.commit()
"""
WRITE = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN IMMEDIATE")
print(flush=True)
sys.stdin.read()
"""


def fill(path: Path, names: int, since: float) -> None:
    """Add the rows of names that were locked at *since* for the last time."""
    with leaselock.Client(f"sqlite:///{path}") as client, client.lock("first"):
        pass
    command = [sys.executable, "-c", FILL, str(path), str(names), str(since)]
    subprocess.run(command, check=True)


@pytest.fixture
def writing(path: Path) -> Iterator[None]:
    """Another process is in the middle of a transaction."""
    fill(path, 10, 0.0)
    command = [sys.executable, "-c", WRITE, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield
        process.communicate()


@pytest.mark.usefixtures("writing")
def test_a_client_that_opens_the_file_and_reads_waits_for_no_transaction(path: Path) -> None:
    with leaselock.Client(f"sqlite:///{path}", op_timeout=0.1) as client:
        assert client.locks() == []
        assert client.lock("first").holder() is None


def instructions(path: Path, work: Callable[[sqlite3.Connection], object]) -> int:
    """How many hundreds of instructions SQLite carries out for *work*."""
    counted = 0

    def count() -> None:
        nonlocal counted
        counted += 1

    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.set_progress_handler(count, 100)
        work(database)
    return counted


@pytest.mark.parametrize("since", [0.0, 2.0**40])
def test_a_start_takes_as_long_beside_many_idle_names(path: Path, since: float) -> None:
    """Neither those that may be deleted nor the others are all read."""
    fill(path, 2 * MOST_READ, since)
    few = instructions(path, lambda database: prune_some(database, 60.0))
    fill(path.with_name("many.db"), 20 * MOST_READ, since)
    many = instructions(path.with_name("many.db"), lambda database: prune_some(database, 60.0))
    assert many < 2 * few


def test_starts_delete_the_rows_of_idle_names(path: Path) -> None:
    fill(path, 4 * MOST_WRITTEN, 0.0)
    (before,) = query(path, "SELECT count(*) FROM lock WHERE since = 0")[0]
    for _ in range(4):
        with leaselock.Client(f"sqlite:///{path}") as client:
            client.locks()
    (after,) = query(path, "SELECT count(*) FROM lock WHERE since = 0")[0]
    assert (before, after) == (4 * MOST_WRITTEN, 0)


def plain(client: leaselock.Client) -> None:
    """Acquire and release by the fast path."""
    with client.lock("a"):
        pass


def cooled(client: leaselock.Client) -> None:
    """Release by the rules, which keep the hold for a moment."""
    with client.lock("a", min_hold=0.001):
        pass
    with client.lock("a"):
        pass


def changed(client: leaselock.Client) -> None:
    """A hold of another mode follows an exclusive one."""
    with client.lock("a"):
        pass
    with client.rwlock("a").read:
        pass


def broken(client: leaselock.Client) -> None:
    """End a hold by force."""
    client.lock("a").acquire()
    assert client.break_lock("a") is not None


@pytest.mark.parametrize("release", [plain, cooled, changed, broken])
def test_a_released_name_keeps_its_token_alone(
    path: Path, release: Callable[[leaselock.Client], None]
) -> None:
    """With the metadata of its last hold, a row takes four times the space."""
    with leaselock.Client(f"sqlite:///{path}") as client:
        release(client)
        ((*kept, token),) = query(path, "SELECT id, client, metadata, token FROM lock")
        assert (kept, token > 0) == ([None] * 3, True)


def test_gc_works_in_small_steps_and_says_how_far_it_is(path: Path) -> None:
    fill(path, 10 * MOST_WRITTEN, 0.0)
    seen: list[int] = []
    with leaselock.Client(f"sqlite:///{path}") as client, client.lock("held"):
        removed = client.gc(seen.append)
    assert seen[-1] == removed
    steps = [later - earlier for earlier, later in zip([0, *seen], seen, strict=False)]
    assert max(steps) <= MOST_WRITTEN
    assert query(path, "SELECT name FROM lock WHERE since = 0") == []


def test_a_name_without_wildcards_is_not_searched_for_among_all(path: Path) -> None:
    fill(path, 100, 0.0)
    with leaselock.Client(f"sqlite:///{path}") as client, client.lock("a[b]"), client.lock("c"):
        assert [lock.name for lock in client.locks("c")] == ["c"]
        assert [lock.name for lock in client.locks("a[[]b]")] == ["a[b]"]
        assert client.locks("first") == client.locks("unknown") == []


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE lock RENAME COLUMN lapsed_offer TO doubt", "ALTER TABLE fact DROP COLUMN value"],
)
def test_a_file_of_another_version_with_the_same_number_is_refused(path: Path, change: str) -> None:
    """Columns were renamed once without a new number."""
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client, client.lock("a"):
        pass
    query(path, "PRAGMA application_id = 0")  # it had no mark either
    query(path, change)
    with leaselock.Client(url) as client:
        with pytest.raises(NotApplied, match=r"has no column .*: end the programs") as caught:
            client.lock("a").acquire()
        assert caught.value.reason == "misconfigured"
        (failed,) = client.doctor()
        assert (failed.level, "has no column" in failed.what) == ("fail", True)
