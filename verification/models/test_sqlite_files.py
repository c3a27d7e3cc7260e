"""The SQLite store with unusual files, full disks and old rows; tokens always increase."""

from __future__ import annotations

import itertools
import json
import os
import stat
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from verification.models.process import Client, Process, claim, inspect
from verification.models.sides import Clock

from leaselock._backends.sqlite import store
from leaselock._backends.sqlite.database import SCHEMA
from leaselock._backends.sqlite.file import RECHECK_INTERVAL
from leaselock._core.contract.backend import (
    Acquire,
    BreakLock,
    Inspect,
    LockState,
    Renew,
)
from leaselock._drivers.system_env import now
from leaselock.errors import NotApplied, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.first_tier

WEEK = 7 * 86400.0


def write(path: Path, statement: str, *words: object) -> None:
    """Change the file directly. This process must not have it open: closing it drops its locks."""
    program = (
        "import json, sqlite3, sys; d = sqlite3.connect(sys.argv[1]);"
        "d.execute(sys.argv[2], json.loads(sys.argv[3])); d.commit(); d.close()"
    )
    arguments = [str(path), statement, json.dumps(words)]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)


# --- a changed file -------------------------------------------------------------------------------


def remove(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    path.rename(path.with_name("aside"))
    path.touch(0o600)


@pytest.mark.parametrize("change", [remove, replace])
def test_a_file_that_was_removed_or_replaced_is_refused(
    change: Callable[[Path], None], path: Path, clients: Callable[[str], Client]
) -> None:
    client = clients("here")
    client.acquire("n")
    change(path)
    # The file is checked at intervals.
    while now() < client.file.checked + RECHECK_INTERVAL:
        continue
    mine = claim("here", "n")
    for request in (Acquire(mine, True), Renew([mine]), BreakLock("n", None), Inspect(None, "*")):
        with pytest.raises(
            NotApplied, match=r"locks\.db was removed or replaced while it was in use"
        ):
            client.call(request)
    assert client.release("n") == "held", "a release does no harm"


def test_a_file_of_another_layout_is_refused(path: Path, clients: Callable[[str], Client]) -> None:
    Client(path, "before").close()
    first = clients("first")
    first.acquire("n")
    first.close()
    write(path, "UPDATE fact SET value = ? WHERE key = 'schema'", "0")
    with pytest.raises(NotApplied, match="has the layout 0 of an older leaselock"):
        clients("later").acquire("n")
    write(path, "UPDATE fact SET value = ? WHERE key = 'schema'", str(SCHEMA))
    assert clients("last").acquire("m") is not None


def test_a_file_that_is_no_database_is_refused(
    path: Path, clients: Callable[[str], Client]
) -> None:
    path.write_bytes(b"no database at all" * 100)
    path.chmod(0o600)
    with pytest.raises(StoreError, match="file is not a database"):
        clients("here").acquire("n")


# --- another boot, another clock ------------------------------------------------------------------

OTHER_BOOT = ("UPDATE fact SET value = ? WHERE key = 'boot'", "another boot or namespace")


def test_a_restart_ends_every_hold_and_wait(path: Path, clients: Callable[[str], Client]) -> None:
    with Process(path, "before") as before, Process(path, "behind") as behind:
        token = int(before.order("acquire n"))
        assert behind.order("wait n") == "busy"
        # By the present clock the lease would never end.
        write(path, "UPDATE lock SET lifetime = 'lease', expires = 1e12")
    write(path, *OTHER_BOOT)
    client = clients("after")
    assert inspect(client, "n") == LockState.exclusive("n", None, None, ())
    again = client.acquire("n")
    assert again is not None
    assert again > token


@pytest.mark.parametrize("order", ["acquire n", "wait held"])
def test_a_file_in_use_under_another_clock_is_refused(
    order: str, path: Path, clients: Callable[[str], Client]
) -> None:
    with Process(path, "a-holder") as holder, Process(path, "theirs") as theirs:
        holder.order("acquire held")
        theirs.order(order)
        if order == "wait held":
            holder.kill()
        write(path, *OTHER_BOOT)
        with pytest.raises(
            NotApplied, match="is in use by processes whose clock differs from ours"
        ):
            clients("ours").acquire("n")
    assert clients("later").acquire("n") is not None


# --- a full disk ----------------------------------------------------------------------------------


def ask_for_many(client: Client) -> None:
    for number in range(5000):
        client.acquire(f"{number} {'x' * 200}")


def test_a_release_works_in_a_full_file(clients: Callable[[str], Client]) -> None:
    client = clients("here")
    client.acquire("n")
    assert client.file.database is not None
    client.file.database.execute("PRAGMA max_page_count = 1")
    with pytest.raises(NotApplied, match=r"full \(SQLITE_FULL\)"):
        ask_for_many(client)
    assert client.release("n") == "held"
    assert client.acquire("n") is not None, "the row of the name is there"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path.resolve() / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "none", str(place)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only who may mount can make a disk that is soon full")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def fill(file: Path) -> None:
    """Fill the disk."""
    with open(file, "wb", buffering=0) as ballast:
        for size in (4096, 1):
            while not _is_full(ballast.fileno(), size):
                continue


def _is_full(file: int, size: int) -> bool:
    try:
        os.write(file, bytes(size))
    except OSError:
        return True
    return False


def test_a_full_disk_is_reported_and_loses_nothing(small_disk: Path) -> None:
    with closing(Client(small_disk / "locks.db", "here")) as client:
        token = client.acquire("n")
        fill(small_disk / "ballast")
        with pytest.raises(StoreError, match=r"locks\.db: .*(full|disk)"):
            ask_for_many(client)
        # A release needs a little space in the log; it is refused if there is none at all.
        try:
            was = client.release("n")
        except StoreError:
            was = ""
        (small_disk / "ballast").unlink()
        assert (was or client.release("n")) == "held"
        again = client.acquire("n")
        assert again is not None
        assert token is not None
        assert again > token


# --- tokens ---------------------------------------------------------------------------------------


def test_a_held_lock_is_never_pruned(path: Path, clients: Callable[[str], Client]) -> None:
    with Process(path, "holder") as holder:
        holder.order("acquire n")
        write(path, "UPDATE lock SET since = 0.0")
        assert clients("here").acquire("n") is None


def test_tokens_keep_growing_in_a_new_file(path: Path, clients: Callable[[str], Client]) -> None:
    first = clients("first")
    before = first.acquire("n")
    first.close()
    for file in path.parent.glob("locks.db?*"):
        if file.is_file():
            file.unlink()
    path.unlink()
    after = clients("second").acquire("n")
    assert before is not None
    assert after is not None
    assert after > before


def test_tokens_keep_growing_after_the_clock_is_set_back(
    clients: Callable[[str], Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(store, "time", clock)
    client = clients("here")
    tokens = []
    for step in (0, 0, -10_000_000, 1, 20_000_000):
        clock.micros += step
        tokens.append(client.acquire("n") or 0)
        assert client.release("n") == "held"
    assert all(one < other for one, other in itertools.pairwise(tokens)), tokens


# --- files ----------------------------------------------------------------------------------------


def test_all_files_are_private(path: Path, clients: Callable[[str], Client]) -> None:
    mask = os.umask(0)
    try:
        clients("here").acquire("n")
    finally:
        os.umask(mask)
    modes = {
        str(file.relative_to(path.parent)): stat.S_IMODE(file.stat().st_mode)
        for file in path.parent.rglob("*")
    }
    assert modes == {
        "locks.db": 0o600,
        "locks.db-wal": 0o600,
        "locks.db-shm": 0o600,
        "locks.db.clients": 0o700,
        "locks.db.clients/here.live": 0o600,
        "locks.db.clients/here.wake": 0o600,
    }


def test_the_files_of_a_killed_client_are_removed(
    path: Path, clients: Callable[[str], Client]
) -> None:
    folder = path.with_name("locks.db.clients")
    with Process(path, "killed") as killed:
        killed.order("acquire n")
        killed.kill()
        assert {file.name for file in folder.iterdir()} == {"killed.live", "killed.wake"}
        here = clients("here")
        assert here.acquire("m") is not None
        assert {file.name for file in folder.iterdir()} == {"here.live", "here.wake"}
        here.close()
        assert list(folder.iterdir()) == []
