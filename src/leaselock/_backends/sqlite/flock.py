"""Locks that end with a process, on systems with `flock`."""

from __future__ import annotations

import errno
import os
import sys

assert sys.platform != "win32"

import fcntl

from leaselock.errors import NotApplied

# What `flock` says where a file system, or the sandbox of a container, has no such locks.
WITHOUT = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL)
OPEN = os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
# Seconds between two looks at a client whose end cannot be waited for.
LOOK_INTERVAL = 0.1


def create_locked(path: str) -> int:
    """Create a file, and lock it until the last process that has it open is gone."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | OPEN, 0o600)
    try:
        _flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB, path)
    except BaseException:
        os.close(file)
        raise
    return file


def is_locked(path: str) -> bool:
    """Return whether a process has the file locked; FileNotFoundError if there is none."""
    file = os.open(path, os.O_RDONLY | OPEN)
    try:
        # A shared lock: two clients that check at once must not take each other for the holder.
        _flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB, path)
    except BlockingIOError:
        return True
    finally:
        os.close(file)
    return False


def is_gone(path: str) -> bool:
    """Return whether no process has the file of a client locked any more."""
    try:
        return not is_locked(path)
    except FileNotFoundError:
        return True
    except OSError:  # too many open files: look again later
        return False


def _flock(file: int, how: int, path: str) -> None:
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in WITHOUT:
            raise
        raise NotApplied(
            f"the file system of {path} has no locks that end with a process (flock: "
            f"{error.strerror}): put the database on a local disk, or use a store on a server",
            "misconfigured",
        ) from error
