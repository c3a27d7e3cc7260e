"""Records are written at once: by threads, by forked children, by killed processes."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

from tests.testing.histories import events, only_file

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import (
    FOREVER,
    RECORD_SIZE,
    Event,
    lock_id,
    read_names,
    read_records,
)
from leaselock.testing.recorder import Recorder

if TYPE_CHECKING:
    from pathlib import Path


def run(source: str, folder: Path) -> subprocess.Popen[str]:
    """Start a process that runs `source` with `recorder` writing into the folder."""
    prelude = "import os, sys; from leaselock.testing.recorder import Recorder; "
    return subprocess.Popen(
        [sys.executable, "-c", f"{prelude}recorder = Recorder(sys.argv[1])\n{source}", folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


# --- recording ----------------------------------------------------------------------------------


def test_each_method_writes_its_record(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        attempt = recorder.acquiring("nightly", timeout=2.5, task=4)
        attempt.granted(17, valid_until=999)
        attempt.writing()
        attempt.write_done(3)
        attempt.write_rejected(16)
        attempt.releasing()
        attempt.released()
        attempt.release_lost()
        attempt.lost()
        attempt.refused()
        attempt.unknown()
        recorder.killed(12345)
    found = [(r.event, r.token, r.aux) for r in read_records(tmp_path)]
    assert found == [
        (Event.ACQUIRING, None, 2_500_000_000),
        (Event.VALID_UNTIL, 17, 999),
        (Event.GRANTED, 17, 0),
        (Event.WRITING, 17, 0),
        (Event.WRITE_DONE, 17, 3),
        (Event.WRITE_REJECTED, 16, 0),
        (Event.RELEASING, 17, 0),
        (Event.RELEASED, 17, 0),
        (Event.RELEASE_LOST, 17, 0),
        (Event.LOST_REPORTED, 17, 0),
        (Event.REFUSED, 17, 0),
        (Event.UNKNOWN, 17, 0),
        (Event.KILLED, None, 12345),
    ]


def test_fields_of_a_record(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder:
        before = time.monotonic_ns()
        attempt = recorder.acquiring("nightly")
        after = time.monotonic_ns()
        other = recorder.acquiring("nightly", timeout=0)
    first, second = read_records(tmp_path)
    assert before <= first.ts <= after
    assert (first.hold, first.task) == (attempt.hold, threading.get_native_id())
    assert (first.lock, first.aux, second.aux) == (lock_id("nightly"), FOREVER, 0)
    assert other.hold != attempt.hold


def test_resumed_hold_is_the_same_hold(tmp_path: Path) -> None:
    with Recorder(tmp_path) as recorder, Recorder(tmp_path) as another:
        attempt = recorder.acquiring("nightly")
        attempt.granted(5)
        resumed = another.resume("nightly", attempt.hold, token=5)
        resumed.releasing()
        resumed.released()
    verdict = check(History.read(tmp_path))
    assert verdict.ok
    assert (verdict.counts.attempts, verdict.counts.processes) == (1, 1)


def test_threads_share_a_recorder(tmp_path: Path) -> None:
    recorder, together = Recorder(tmp_path), threading.Barrier(8)

    def attempts(number: int) -> None:
        together.wait()
        for _ in range(50):
            recorder.acquiring(f"lock {number % 3}").refused()

    threads = [threading.Thread(target=attempts, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    recorder.close()
    history = History.read(tmp_path)
    assert sum(len(lock.holds) for lock in history.locks.values()) == 400
    assert sorted(lock.name for lock in history.locks.values()) == ["lock 0", "lock 1", "lock 2"]
    assert history.processes == 1


def test_two_threads_that_open_files_at_once_keep_one_pair(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)

    class Blind(dict):  # type: ignore[type-arg]
        """Returns None for every key, as if the other thread had not stored its files yet."""

        def get(self, key: object, default: object = None) -> None:
            return None

    recorder._files = Blind()
    recorder.acquiring("nightly").refused()
    assert events(tmp_path) == [Event.ACQUIRING, Event.REFUSED]
    assert only_file(tmp_path).stat().st_size == 2 * RECORD_SIZE
    recorder.close()


def test_forked_child_writes_its_own_file(tmp_path: Path) -> None:
    child = run(
        """
attempt = recorder.acquiring("before")
pid = os.fork()
if pid == 0:
    recorder.acquiring("child").refused()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
attempt.refused()
print(os.getpid(), pid)
""",
        tmp_path,
    )
    output, _ = child.communicate()
    parent, forked = map(int, output.split())
    found = {(record.pid, record.event) for record in read_records(tmp_path)}
    both = (Event.ACQUIRING, Event.REFUSED)
    assert found == {(pid, event) for pid in (parent, forked) for event in both}
    assert len(list(tmp_path.glob("*.hist"))) == 2
    assert set(read_names(tmp_path).values()) == {"before", "child"}


def test_records_survive_sigkill(tmp_path: Path) -> None:
    child = run("recorder.acquiring('a').granted(1); print('held', flush=True); input()", tmp_path)
    assert child.stdout is not None
    assert child.stdout.readline() == "held\n"
    with Recorder(tmp_path) as recorder:
        recorder.killed(child.pid)
        child.kill()
        child.communicate()
        successor = recorder.acquiring("a")
        successor.granted(2)
        successor.releasing()
        successor.released()
    verdict = check(History.read(tmp_path))
    assert verdict.ok, str(verdict)
    counts = verdict.counts
    assert (counts.grants, counts.died_holding, counts.processes) == (2, 1, 2)


def test_record_on_a_full_disk_is_an_error(tmp_path: Path) -> None:
    child = run(
        """
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
recorder.acquiring("a")
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    recorder.acquiring("a")
except OSError as error:
    print(error.strerror)
""",
        tmp_path,
    )
    assert child.communicate()[0] == "a history record was cut short\n"
    assert events(tmp_path) == [Event.ACQUIRING]
