"""The location of the lock file: its paths, and what identifies it.

A file at an unsuitable place is refused: where other users could replace it, or other hosts see it.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leaselock._named_tuple import NamedTuple
from leaselock.errors import NotApplied

if sys.platform == "win32":
    from leaselock._backends.sqlite.creation_windows import ELSEWHERE, create
else:
    from leaselock._backends.sqlite.creation import ELSEWHERE, create

if TYPE_CHECKING:
    from leaselock._core.contract.backend import ErrorReason


class Location(NamedTuple):
    """A suitable database file, and the directory of its clients."""

    path: str
    clients: str
    device: int
    inode: int


def prepare(path: str) -> Location:
    """Create the file and the directory of clients if missing; refuse an unsuitable location."""
    try:
        real, clients, status = create(path)
    except OSError as error:
        reason: ErrorReason = "denied" if isinstance(error, PermissionError) else "refused"
        raise NotApplied(
            f"cannot use {path!r} for locks: {error}: correct that, {ELSEWHERE}", reason
        ) from error
    return Location(real, clients, status.st_dev, status.st_ino)


def unchanged(location: Location) -> bool:
    """Whether the path still names the file that `prepare` found."""
    # Reliable only while this process has the file open, because inode numbers are reused.
    try:
        status = os.lstat(location.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return status.st_ino == location.inode and status.st_dev == location.device


def log_of(location: Location) -> int | None:
    """The inode of the file's log, if it has one.

    While this process has the file open, no other may remove the log. But if this process opens and
    closes the file without SQLite, the kernel releases the locks of SQLite (hazard K2), and the
    next process to close the file removes the log.
    """
    try:
        return os.lstat(f"{location.path}-wal").st_ino
    except (FileNotFoundError, NotADirectoryError):
        return None
