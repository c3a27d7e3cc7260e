"""Readers, writers and permits of leaselock, kazoo and Curator on one path."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from testkit.servers.ensembles import fresh
from verification.interop.contest import HOLD, ROOT, TURNS, all_ready, finished
from verification.interop.test_zookeeper import curator, kazoo, root_of
from verification.interop.zoo_modes import MARKS, PERMITS, SESSION

import leaselock
from leaselock.errors import LimitMismatch, NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.zookeeper import Ensemble

pytestmark = pytest.mark.nightly

__all__ = ["curator", "kazoo"]


class Hold(NamedTuple):
    """One hold, in nanoseconds, and how it was held."""

    granted: int
    released: int
    mode: str
    file: str


class Contest:
    """Processes on one path."""

    def __init__(self, ensemble: Ensemble, folder: Path, **words: str) -> None:
        self.hosts = ensemble.hosts
        self.url = fresh(ensemble, timeout=SESSION, **words)
        self.path = f"{root_of(self.url)}/shared"
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        self.files: list[str] = []

    def enter(self, kind: str, *modes: str, command: tuple[str, ...] = ()) -> None:
        """Start contenders of one kind in one process, one in each of these modes."""
        files = [str(self.folder / f"{kind} {mode} {n}") for n, mode in enumerate(modes)]
        python = (sys.executable, "-m", "verification.interop.zoo_modes", kind, self.url, self.path)
        words = [*(command or python), str(TURNS), str(HOLD), *files]
        self.files += files
        self.processes.append(subprocess.Popen(words, cwd=ROOT))

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """Hold the lock until all that were started are about to acquire it."""
        with leaselock.Client(self.url) as client, client.rwlock("shared").write:
            yield
            all_ready(self.folder, len(self.files))

    def holds(self) -> list[Hold]:
        """All holds, when all have ended: each contender has had its turns."""
        finished(self.processes)
        found = []
        for file in map(Path, self.files):
            lines = [line.split() for line in file.read_text().splitlines()]
            assert len(lines) == TURNS
            mode = file.name.split()[1]
            for granted, released, _, *rest in lines:
                how = rest[0] if rest else "write" if mode == "update" else mode
                found.append(Hold(int(granted), int(released), how, file.name))
        return sorted(found)


def most_at_once(holds: list[Hold]) -> int:
    """The most holds at one time."""
    ends = [(hold.released, -1) for hold in holds]
    count = most = 0
    for _, change in sorted([*((hold.granted, 1) for hold in holds), *ends]):
        count += change
        most = max(most, count)
    return most


def check_writers(holds: list[Hold]) -> None:
    """No writer holds beside another one or a reader."""
    last = Hold(0, 0, "read", "")
    writer = last
    for hold in holds:
        before = last if hold.mode == "write" else writer
        assert hold.granted > before.released, f"{hold} beside {before}"
        last = max(last, hold, key=lambda one: one.released)
        writer = hold if hold.mode == "write" else writer


def test_with_kazoo_s_read_and_write_locks(ensemble: Ensemble, tmp_path: Path) -> None:
    contest = Contest(ensemble, tmp_path)
    with contest.beginning():
        contest.enter("threads", "read", "read", "write", "update")
        contest.enter("asyncio", "read", "write")
        contest.enter("kazoo", "read", "read", "write")
    found = contest.holds()
    check_writers(found)
    assert most_at_once([hold for hold in found if hold.mode == "read"]) > 1


def test_with_kazoo_s_semaphore(ensemble: Ensemble, tmp_path: Path) -> None:
    contest = Contest(ensemble, tmp_path)
    (tmp_path / MARKS).mkdir()
    contest.enter("threads", "permit", "permit")
    contest.enter("asyncio", "permit")
    contest.enter("kazoo", "permit", "permit")
    assert most_at_once(contest.holds()) == PERMITS


def test_with_curator_s_read_write_lock(
    ensemble: Ensemble, curator: list[str], tmp_path: Path
) -> None:
    contest = Contest(ensemble, tmp_path, names="curator")
    with contest.beginning():
        contest.enter("threads", "read", "read", "write")
        contest.enter("asyncio", "read", "write")
        java = (*curator, contest.hosts, contest.path)
        contest.enter("curator", "read", "read", "write", command=java)
    found = contest.holds()
    check_writers(found)
    assert most_at_once([hold for hold in found if hold.mode == "read"]) > 1


def test_each_shows_the_permits_of_the_other(ensemble: Ensemble, kazoo: Any) -> None:
    url = fresh(ensemble)
    theirs = kazoo.Semaphore(f"{root_of(url)}/gpus", "host-1", max_leases=4)
    with leaselock.Client(url) as client, theirs:
        ours = client.semaphore("gpus", permits=4, label="nightly")
        lease = ours.acquire(2, timeout=5.0)
        assert [holder.label for holder in ours.holders()] == ["host-1", "nightly"]
        assert [holder.permits for holder in ours.holders()] == [1, 2]
        assert ours.available() == 1
        assert len(theirs.lease_holders()) == 3
        assert ours.try_acquire(2) is None
        with pytest.raises(LimitMismatch, match="4 permits"):
            client.semaphore("gpus", permits=5).acquire(timeout=0)
        assert [info.name for info in client.locks()] == ["gpus"]
        broken = client.break_lock("gpus", token=lease.token)
        assert broken is not None
        assert len(theirs.lease_holders()) == 1


def test_a_downgrade_is_a_reader_to_kazoo(ensemble: Ensemble, kazoo: Any) -> None:
    url = fresh(ensemble)
    path = f"{root_of(url)}/catalog"
    with leaselock.Client(url) as client:
        catalog = client.rwlock("catalog")
        write = catalog.write.acquire(timeout=5.0)
        reader = kazoo.ReadLock(path)
        assert not reader.acquire(blocking=False)
        with catalog.read:
            write.release()
            assert reader.acquire(timeout=5.0)
            assert not kazoo.WriteLock(path).acquire(blocking=False)
            assert client.rwlock("catalog").write.holders()[0].mode == "shared"
        reader.release()
        assert kazoo.WriteLock(path).acquire(blocking=False)


def test_an_upgrade_waits_for_kazoo_s_readers_and_keeps_new_ones_out(
    ensemble: Ensemble, kazoo: Any
) -> None:
    url = fresh(ensemble)
    path = f"{root_of(url)}/catalog"
    early, late = kazoo.ReadLock(path), kazoo.ReadLock(path)
    with leaselock.Client(url) as client, client.rwlock("catalog").update as lease:
        first = lease.token
        assert early.acquire(timeout=5.0)
        assert not lease.upgrade(timeout=0.1)
        early.release()
        assert lease.upgrade(timeout=5.0)
        assert lease.token > first
        assert not late.acquire(blocking=False)


def test_a_lock_and_a_read_write_lock_of_curator_s_format_exclude_each_other_by_an_error(
    ensemble: Ensemble,
) -> None:
    url = fresh(ensemble, names="curator")
    with leaselock.Client(url) as client, leaselock.Client(url) as other:
        with client.lock("a"), pytest.raises(NotApplied, match="use another name"):
            other.rwlock("a").read.acquire(timeout=5.0)
        with client.rwlock("a").read, pytest.raises(NotApplied, match="use another name"):
            other.lock("a").acquire(timeout=5.0)
        with pytest.raises(ValueError, match="update"):
            _ = client.rwlock("a").update
        with pytest.raises(ValueError, match="no semaphores"):
            client.semaphore("a", permits=2)
