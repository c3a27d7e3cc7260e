"""Recording what a process was told about its locks, so that exclusion can be proved afterwards.

The law: an instant is taken so that a claim is never longer than the truth. ASKED, RELEASING and
KILLED are recorded before the call, everything else after it. With that, two claims that overlap in
the files overlapped in reality.

    recorder = Recorder(folder)
    attempt = recorder.ask("nightly", timeout=0)
    attempt.granted(lease.token, valid_until=...)
    attempt.releasing()
    lease.release()
    attempt.released()

`python -m leaselock.testing.history FOLDER` checks the files and prints the verdict.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from leaselock.testing.records import (
    FOREVER,
    NAMES,
    RECORDS,
    CorruptHistory,
    Event,
    Record,
    lock_id,
    name_line,
    read_names,
    read_records,
)

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["Attempt", "CorruptHistory", "Event", "Record", "Recorder", "read_names", "read_records"]

# Set once per process, so that two recorders of one process are known to be one process.
_BORN: dict[int, int] = {}


class _Files:
    """The two files of one process: records, and the names of the locks in them."""

    __slots__ = ("born", "idents", "names", "pid", "records", "stem")

    def __init__(self, folder: Path, pid: int) -> None:
        self.pid = pid
        self.born = _BORN.setdefault(pid, (time.monotonic_ns() >> 20) & 0xFFFFFFFF)
        self.stem = folder / f"{pid}-{os.urandom(6).hex()}"
        self.idents: dict[str, int] = {}
        self.records = _create(self.stem.with_suffix(RECORDS))
        self.names = _create(self.stem.with_suffix(NAMES))

    def ident(self, lock: str) -> int:
        """The lock's id, its name being on disk first."""
        known = self.idents.get(lock)
        if known is None:
            known = lock_id(lock)
            _append(self.names, name_line(known, lock))
            self.idents[lock] = known
        return known

    def close(self) -> None:
        os.close(self.records)
        os.close(self.names)

    def discard(self) -> None:
        self.close()
        self.stem.with_suffix(RECORDS).unlink()
        self.stem.with_suffix(NAMES).unlink()


def _create(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)


def _append(descriptor: int, data: bytes) -> None:
    if os.write(descriptor, data) != len(data):
        raise OSError(errno.ENOSPC, "a history record was cut short")


class Recorder:
    """Writes a history into a folder; usable from any thread, and in children after a fork.

    Nothing is buffered: a record that was written survives SIGKILL.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, _Files] = {}

    def ask(self, lock: str, *, timeout: float | None = None, task: int | None = None) -> Attempt:
        """Record that somebody is about to acquire; `timeout=0` is a non-blocking attempt."""
        attempt = Attempt(self, lock, task=task)
        limit = FOREVER if timeout is None else round(timeout * 1_000_000_000)
        self.record(Event.ASKED, lock, attempt.hold, task=attempt.task, aux=limit)
        return attempt

    def resume(
        self, lock: str, hold: int, *, fence: int | None = None, task: int | None = None
    ) -> Attempt:
        """Go on with a hold that another process recorded so far, for instance after `adopt`."""
        return Attempt(self, lock, hold=hold, fence=fence, task=task)

    def killed(self, pid: int) -> None:
        """Record, before the signal is sent, that `pid` is about to be killed.

        It says that the victim lived and believed until now, so never record it of a process that
        may have ended by itself.
        """
        self.record(Event.KILLED, None, 0, aux=pid)

    def record(
        self,
        event: Event,
        lock: str | None,
        hold: int,
        *,
        task: int = 0,
        fence: int | None = None,
        aux: int = 0,
    ) -> None:
        """Append one record, stamped now."""
        now = time.monotonic_ns()
        files = self._own_files()
        ident = 0 if lock is None else files.ident(lock)
        entry = Record(now, event, ident, hold, files.pid, files.born, task, fence, aux)
        _append(files.records, entry.pack())

    def _own_files(self) -> _Files:
        # Keyed by pid and without a lock: a child of fork finds no entry of its own and opens new
        # files, and there is no mutex that a vanished thread of the parent could have left held.
        pid = os.getpid()
        files = self._files.get(pid)
        if files is None:
            opened = _Files(self._folder, pid)
            files = self._files.setdefault(pid, opened)
            if files is not opened:
                opened.discard()
        return files

    def close(self) -> None:
        """Close the files; a later record would open new ones."""
        while self._files:
            self._files.popitem()[1].close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Attempt:
    """One attempt to acquire and the hold that may come of it; each method writes one record.

    Of nested acquires only the outermost is recorded as released; inner grants may be recorded too.
    """

    __slots__ = ("_recorder", "fence", "hold", "lock", "task")

    def __init__(
        self,
        recorder: Recorder,
        lock: str,
        *,
        hold: int | None = None,
        fence: int | None = None,
        task: int | None = None,
    ) -> None:
        self._recorder = recorder
        self.lock = lock
        # Random rather than counted: unique over processes, forks and recycled pids.
        self.hold = int.from_bytes(os.urandom(8), "little") if hold is None else hold
        self.fence = fence
        self.task = threading.get_native_id() if task is None else task

    def _put(self, event: Event, aux: int = 0, fence: int | None = None) -> None:
        token = self.fence if fence is None else fence
        self._recorder.record(event, self.lock, self.hold, task=self.task, fence=token, aux=aux)

    def granted(self, fence: int | None = None, *, valid_until: int | None = None) -> None:
        """The lock is ours; `valid_until` also records how long that counts."""
        self.fence = fence
        if valid_until is not None:
            self.valid_until(valid_until)
        self._put(Event.GRANTED)

    def valid_until(self, instant: int) -> None:
        """The lease counts as held until this instant (CLOCK_MONOTONIC, ns); renewals repeat it.

        Read the clock before asking the lease what remains, so that the sum is never too late.
        """
        self._put(Event.VALID_UNTIL, aux=instant)

    def refused(self) -> None:
        """The attempt ended without the lock, and certainly so."""
        self._put(Event.REFUSED)

    def unknown(self) -> None:
        """The call that was under way, acquire or release, may or may not have taken effect."""
        self._put(Event.UNKNOWN)

    def releasing(self) -> None:
        """From here on the lock is no longer claimed; to be called before the release."""
        self._put(Event.RELEASING)

    def released(self) -> None:
        """The release is confirmed."""
        self._put(Event.RELEASED)

    def release_lost(self) -> None:
        """The release found the lease already lost."""
        self._put(Event.RELEASE_LOST)

    def lost(self) -> None:
        """The library told us that the lease is lost."""
        self._put(Event.LOST_TOLD)

    def write_asked(self, fence: int | None = None) -> None:
        """About to write to the guarded resource; the fence is the grant's unless given."""
        self._put(Event.WRITE_ASKED, fence=fence)

    def write_done(self, order: int, fence: int | None = None) -> None:
        """The resource accepted the write as its `order`-th."""
        self._put(Event.WRITE_DONE, aux=order, fence=fence)

    def write_rejected(self, fence: int | None = None) -> None:
        """The resource refused the write because of its fence."""
        self._put(Event.WRITE_REJECTED, fence=fence)


if __name__ == "__main__":
    from leaselock.testing.command import main

    sys.exit(main())
