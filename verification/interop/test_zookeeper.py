"""One queue for leaselock, kazoo's own lock and Curator's own mutex: no overlap, in order."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.servers.ensembles import fresh
from testkit.servers.process import eventually, program
from verification.interop.contest import (
    HOLD,
    ROOT,
    TURNS,
    all_ready,
    check_exclusion,
    check_tokens,
    counts,
    finished,
    turns,
)
from verification.interop.zoo import BesideCurator

import leaselock
from leaselock._backends.zookeeper.url import parsed
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testkit.servers.zookeeper import Ensemble

pytestmark = pytest.mark.nightly

FOLDER = Path("/usr/share/java")
JARS = "curator-framework curator-client curator-recipes zookeeper zookeeper-jute guava".split()
JARS += ["slf4j-api", "slf4j-nop"]
JAVA = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
EACH = 4


def class_path() -> list[str]:
    """The class path of Curator; a skip if it is not installed."""
    paths = [str(FOLDER / f"{jar}.jar") for jar in JARS]
    missing = [path for path in paths if not os.path.exists(path)]
    if missing:
        pytest.skip(f"no server: {', '.join(missing)} is missing")
    return ["-cp", ":".join(paths)]


@pytest.fixture(scope="session")
def curator(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a contender with Curator."""
    compiler, folder = program("javac"), tmp_path_factory.mktemp("curator")
    source = Path(__file__).parent / "curator" / "Contend.java"
    words = class_path()
    subprocess.run([compiler, *words, "-d", str(folder), str(source)], check=True)
    return [program("java"), *JAVA, words[0], f"{words[1]}:{folder}", "Contend"]


@pytest.fixture
def kazoo(ensemble: Ensemble) -> Iterator[Any]:
    """A kazoo client."""
    client = KazooClient(ensemble.hosts)
    client.start()
    yield client
    client.stop()
    client.close()


def root_of(url: str) -> str:
    """The path below which its locks are."""
    return parsed(url).root


class Contest:
    """Processes on one path."""

    def __init__(self, ensemble: Ensemble, folder: Path, **words: str) -> None:
        self.hosts = ensemble.hosts
        self.url = fresh(ensemble, **words)
        self.path = f"{root_of(self.url)}/shared"
        self.folder = folder
        self.job = [str(TURNS), str(HOLD)]
        self.processes: list[subprocess.Popen[bytes]] = []
        self.count = 0

    @contextlib.contextmanager
    def beginning(self) -> Iterator[None]:
        """Hold the lock until all that were started are about to acquire it."""
        with leaselock.Client(self.url) as client, client.lock("shared"):
            yield
            all_ready(self.folder, self.count)

    def enter(self, kind: str, count: int = EACH) -> None:
        """Start contenders of one kind in one Python process."""
        command = [sys.executable, "-m", "verification.interop.zoo", kind, self.url, self.path]
        self.start(command, kind, count)

    def start(self, command: list[str], kind: str, count: int = EACH) -> None:
        """Start contenders of one kind in one process."""
        files = [str(self.folder / f"{kind} {number}") for number in range(count)]
        self.count += count
        self.processes.append(subprocess.Popen([*command, *self.job, *files], cwd=ROOT))

    def judge(self, *kinds: str) -> None:
        """No two held at once, the order was that of the nodes, and each contender held."""
        finished(self.processes)
        found = turns(self.folder)
        check_exclusion(found)
        check_tokens(found)
        assert list(counts(found).values()) == [TURNS] * self.count
        assert {turn.file.rpartition(" ")[0] for turn in found} == set(kinds)


def test_with_kazoo_s_lock(ensemble: Ensemble, tmp_path: Path) -> None:
    contest = Contest(ensemble, tmp_path)
    with contest.beginning():
        contest.enter("threads", 2)
        contest.enter("asyncio", 2)
        contest.enter("kazoo")
    contest.judge("threads", "asyncio", "kazoo")


def test_with_curator_s_mutex_and_kazoo_s_lock(
    ensemble: Ensemble, curator: list[str], tmp_path: Path
) -> None:
    contest = Contest(ensemble, tmp_path, names="curator")
    with contest.beginning():
        contest.enter("threads", 2)
        contest.enter("asyncio", 2)
        contest.enter("kazoo-with-curator")
        contest.start([*curator, contest.hosts, contest.path], "curator")
    contest.judge("threads", "asyncio", "kazoo-with-curator", "curator")


def test_each_library_shows_the_holders_of_the_other(ensemble: Ensemble, kazoo: Any) -> None:
    """Both libraries show the same holder and waiters."""
    url = fresh(ensemble)
    with leaselock.Client(url) as client:
        lock = client.lock("shared", label="nightly")
        theirs = kazoo.Lock(f"{root_of(url)}/shared", "host-1")
        with theirs:
            holder = lock.holder()
            assert holder is not None
            assert (holder.host, holder.label) == ("another program", "host-1")
            assert lock.try_acquire() is None
            assert [report.name for report in client.locks()] == ["shared"]
        with lock:
            (ours,) = theirs.contenders()
            assert '"label": "nightly"' in ours
            assert not theirs.acquire(blocking=False)


def test_a_waiter_of_one_library_follows_a_holder_of_the_other(
    ensemble: Ensemble, kazoo: Any
) -> None:
    url = fresh(ensemble)
    with leaselock.Client(url) as client:
        lock = client.lock("shared")
        theirs = kazoo.Lock(f"{root_of(url)}/shared", "host-1")
        theirs.acquire()
        early = lock.try_acquire(timeout=0.2)
        assert early is None
        theirs.release()
        lease = lock.acquire(timeout=5.0)
        assert lease is not None
        assert client.break_lock("shared") is not None
        assert theirs.acquire(timeout=5.0)
        broken = client.break_lock("shared")
        assert broken is not None
        assert broken.label == "host-1"
        eventually(lambda: lease.lost)


def test_a_queue_with_names_that_curator_ignores_is_refused(ensemble: Ensemble, kazoo: Any) -> None:
    """Curator sorts kazoo's names last in the queue, which would break mutual exclusion."""
    url = fresh(ensemble)
    root = root_of(url)
    curious = BesideCurator(kazoo, f"{root}/shared")
    with leaselock.Client(url) as client, curious:
        with pytest.raises(NotApplied, match="names=curator"):
            client.lock("shared").acquire(timeout=5.0)
        eventually(lambda: len(kazoo.get_children(f"{root}/shared")) == 1)
