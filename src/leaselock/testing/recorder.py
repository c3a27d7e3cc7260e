"""Records what a process observes of its locks, so that exclusion can be checked afterwards.

Invariant: a recorded hold is never longer than the real one. ACQUIRING, RELEASING and KILLED are
recorded before the call, everything else after it. Therefore two holds that overlap in the files
overlapped in reality.

    recorder = Recorder(folder)
    attempt = recorder.acquiring("nightly", timeout=0)
    attempt.granted(lease.token, valid_until=...)
    attempt.releasing()
    lease.release()
    attempt.released()

`python -m leaselock.testing.history FOLDER` checks the files and prints the verdict.
"""

from __future__ import annotations

import errno
import os
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from leaselock.testing.record_format import (
    FOREVER,
    MODES,
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

# Set once per process, so that two recorders of one process are identified as one process.
_BORN: dict[int, int] = {}


class _Files:
    """The two files of one process: its records, and the names of the locks in them."""

    __slots__ = ("born", "idents", "names", "pid", "records", "stem")

    def __init__(self, folder: Path, pid: int) -> None:
        self.pid = pid
        self.born = _BORN.setdefault(pid, (time.monotonic_ns() >> 20) & 0xFFFFFFFF)
        self.stem = folder / f"{pid}-{os.urandom(6).hex()}"
        self.idents: dict[str, int] = {}
        self.records = _create(self.stem.with_suffix(RECORDS))
        self.names = _create(self.stem.with_suffix(NAMES))

    def ident(self, lock: str) -> int:
        """Return the lock's id, after writing its name to disk."""
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
    """Writes a history into a folder. May be used by any thread, and in a child after a fork.

    Nothing is buffered: a written record survives SIGKILL.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._files: dict[int, _Files] = {}

    def acquiring(
        self,
        lock: str,
        *,
        timeout: float | None = None,
        task: int | None = None,
        mode: str = "exclusive",
        permits: int = 0,
        limit: int = 0,
    ) -> Attempt:
        """Record the start of an acquire; `timeout=0` is a non-blocking attempt. *mode* is a key of
        `record_format.MODES`; of a semaphore state the *permits* and their *limit*.
        """
        attempt = Attempt(self, lock, task=task)
        if mode in MODES:
            self.record(Event.SHARING, lock, attempt.hold, task=attempt.task, aux=MODES[mode])
        if permits:
            told = {"task": attempt.task, "token": limit, "aux": permits}
            self.record(Event.PERMITS, lock, attempt.hold, **told)
        limit = FOREVER if timeout is None else round(timeout * 1_000_000_000)
        self.record(Event.ACQUIRING, lock, attempt.hold, task=attempt.task, aux=limit)
        return attempt

    def resume(
        self, lock: str, hold: int, *, token: int | None = None, task: int | None = None
    ) -> Attempt:
        """Continue a hold that another process has recorded so far, for instance after `adopt`."""
        return Attempt(self, lock, hold=hold, token=token, task=task)

    def killed(self, pid: int) -> None:
        """Record, before the signal is sent, that process `pid` is about to be killed.

        The record states that the process was alive until now, so do not write it for a process
        that may have ended by itself.
        """
        self.record(Event.KILLED, None, 0, aux=pid)

    def record(
        self,
        event: Event,
        lock: str | None,
        hold: int,
        *,
        task: int = 0,
        token: int | None = None,
        aux: int = 0,
    ) -> None:
        """Append one record with the current time."""
        now = time.monotonic_ns()
        files = self._own_files()
        ident = 0 if lock is None else files.ident(lock)
        entry = Record(now, event, ident, hold, files.pid, files.born, task, token, aux)
        _append(files.records, entry.pack())

    def _own_files(self) -> _Files:
        # Keyed by pid and without a mutex: a forked child finds no entry of its own and opens new
        # files, and cannot inherit a mutex locked by a thread of the parent.
        pid = os.getpid()
        files = self._files.get(pid)
        if files is None:
            opened = _Files(self._folder, pid)
            files = self._files.setdefault(pid, opened)
            if files is not opened:
                opened.discard()
        return files

    def close(self) -> None:
        """Close the files; a later record opens new ones."""
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
    """One attempt to acquire and the hold that results; each method writes one record.

    Of nested acquires, record the release of the outermost only. Inner grants may be recorded.
    """

    __slots__ = ("_recorder", "hold", "lock", "task", "token")

    def __init__(
        self,
        recorder: Recorder,
        lock: str,
        *,
        hold: int | None = None,
        token: int | None = None,
        task: int | None = None,
    ) -> None:
        self._recorder = recorder
        self.lock = lock
        # Random rather than counted: unique across processes, forks and recycled pids.
        self.hold = int.from_bytes(os.urandom(8), "little") if hold is None else hold
        self.token = token
        self.task = threading.get_native_id() if task is None else task

    def _put(self, event: Event, aux: int = 0, token: int | None = None) -> None:
        token = self.token if token is None else token
        self._recorder.record(event, self.lock, self.hold, task=self.task, token=token, aux=aux)

    def granted(self, token: int | None = None, *, valid_until: int | None = None) -> None:
        """Record the grant; with `valid_until`, also record until when the lease is valid."""
        self.token = token
        if valid_until is not None:
            self.valid_until(valid_until)
        self._put(Event.GRANTED)

    def valid_until(self, instant: int) -> None:
        """Record until when the lease is valid (CLOCK_MONOTONIC, ns); repeat it after renewals.

        Read the clock before `lease.remaining`, so that the sum is never too late.
        """
        self._put(Event.VALID_UNTIL, aux=instant)

    def refused(self) -> None:
        """Record that the attempt certainly ended without the lock."""
        self._put(Event.REFUSED)

    def unknown(self) -> None:
        """Record that the current acquire or release may or may not have been applied."""
        self._put(Event.UNKNOWN)

    def releasing(self) -> None:
        """Record that the hold ends now; call it before the release."""
        self._put(Event.RELEASING)

    def released(self) -> None:
        """Record that the release was confirmed."""
        self._put(Event.RELEASED)

    def release_lost(self) -> None:
        """Record that the release found the lease already lost."""
        self._put(Event.RELEASE_LOST)

    def lost(self) -> None:
        """Record that the library reported the loss of the lease."""
        self._put(Event.LOST_REPORTED)

    def writing(self, token: int | None = None) -> None:
        """Record the start of a write to the resource, with the grant's token unless given."""
        self._put(Event.WRITING, token=token)

    def write_done(self, order: int, token: int | None = None) -> None:
        """Record that the resource accepted the write as its `order`-th."""
        self._put(Event.WRITE_DONE, aux=order, token=token)

    def write_rejected(self, token: int | None = None) -> None:
        """Record that the resource rejected the write because of its token."""
        self._put(Event.WRITE_REJECTED, token=token)
