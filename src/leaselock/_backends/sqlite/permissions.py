"""Checks that no other user can replace the lock file, on purpose or by accident.

A stranger is any user but the own one and root. Files of a stranger are used only if the stranger
shares them explicitly.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import os
import stat

from leaselock.errors import NotApplied

ELSEWHERE = (
    "or set LEASELOCK_URL to a file on a local disk (sqlite:////path/locks.db), or to a "
    "server store"
)
FILE = os.R_OK | os.W_OK
DIRECTORY = os.R_OK | os.W_OK | os.X_OK


def check_links(directory: str) -> None:
    """Refuse a path whose symbolic links a stranger can change."""
    prefix = directory
    while prefix != os.path.dirname(prefix):
        status = os.lstat(prefix)
        if stat.S_ISLNK(status.st_mode) and not trusted(status):
            raise NotApplied(
                f"{prefix!r} is a symbolic link of user {status.st_uid}, who could change its "
                f"target: write the path it points to, {ELSEWHERE}",
                "misconfigured",
            )
        prefix = os.path.dirname(prefix)


def check_directory(path: str, status: os.stat_result) -> None:
    """Refuse a directory where a stranger can replace files or this user cannot create any."""
    if not stat.S_ISDIR(status.st_mode):
        raise NotApplied(
            f"{path!r} is not a directory: correct the path, {ELSEWHERE}", "misconfigured"
        )
    world = world_writable(status)
    if world and not status.st_mode & stat.S_ISVTX:
        raise NotApplied(
            f"every user can replace files in {path!r}: forbid that (chmod o-w, or chmod +t), or "
            f"make a directory in it (mkdir -m 700), {ELSEWHERE}",
            "misconfigured",
        )
    if not trusted(status) and (world or not shared(path, status, DIRECTORY)):
        raise NotApplied(
            f"{path!r} belongs to user {status.st_uid}, not to user {os.geteuid()}: run as that "
            f"user, or share it through its group (chmod g+rwx), {ELSEWHERE}",
            "denied",
        )
    _check_writable(path)


def _check_writable(path: str) -> None:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise NotApplied(
            f"{path!r} is on a read-only file system: mount it writable, {ELSEWHERE}", "denied"
        )
    if not permitted(path, DIRECTORY):
        raise NotApplied(
            f"permission denied: user {os.geteuid()} may not read and write the directory "
            f"{path!r}, where SQLite keeps files of its own: change its mode or owner, {ELSEWHERE}",
            "denied",
        )


def check_file(path: str, status: os.stat_result, parent: os.stat_result) -> None:
    """Refuse a database of a stranger, one that this user cannot use, or one with a second name."""
    if stat.S_ISLNK(status.st_mode):
        raise NotApplied(
            f"{path!r} is a symbolic link: write the path it points to, {ELSEWHERE}",
            "misconfigured",
        )
    if not stat.S_ISREG(status.st_mode):
        raise NotApplied(
            f"{path!r} is not a regular file: choose another name, {ELSEWHERE}", "misconfigured"
        )
    if status.st_nlink > 1:  # SQLite names its log after the file: two names, two logs, two holders
        raise NotApplied(
            f"{path!r} has {status.st_nlink} hard links: remove the others, {ELSEWHERE}",
            "misconfigured",
        )
    if not trusted(status) and (world_writable(parent) or not shared(path, status, FILE)):
        raise NotApplied(
            f"{path!r} belongs to user {status.st_uid}, not to user {os.geteuid()}: run as that "
            f"user, or share it (chmod g+rw) in a directory of your group, {ELSEWHERE}",
            "denied",
        )
    if not permitted(path, FILE):
        raise NotApplied(
            f"permission denied: user {os.geteuid()} may not read and write {path!r}: change its "
            f"mode or its owner (user {status.st_uid}), {ELSEWHERE}",
            "denied",
        )
    _check_companions(path, status, parent)


def _check_companions(path: str, database: os.stat_result, parent: os.stat_result) -> None:
    """Check the log files, because SQLite replays into the database any log that it finds."""
    for companion in (path + "-wal", path + "-shm", path + "-journal"):
        try:
            status = os.lstat(companion)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(status.st_mode):
            raise NotApplied(
                f"{companion!r} is not a regular file: remove it, {ELSEWHERE}", "misconfigured"
            )
        check_stranger(companion, status, database, parent)


def check_stranger(
    path: str, status: os.stat_result, database: os.stat_result, parent: os.stat_result
) -> None:
    """Refuse a file next to the database that any user may have created."""
    # If only users that the owner trusts can create files there, one of them did; in /tmp any user.
    if trusted(status) or status.st_uid == database.st_uid or not world_writable(parent):
        return
    raise NotApplied(
        f"{path!r} belongs to another user, {status.st_uid}, in a directory that every user can "
        f"write to: have it removed, {ELSEWHERE}",
        "denied",
    )


def usable(path: str, status: os.stat_result, database: os.stat_result) -> bool:
    """Whether this user may use a directory of a user of the database."""
    if trusted(status) or status.st_uid == database.st_uid:
        return permitted(path, DIRECTORY)
    return shared(path, status, DIRECTORY)


def trusted(status: os.stat_result) -> bool:
    """Whether it belongs to this user or to root."""
    return status.st_uid in (0, os.geteuid())


def world_writable(status: os.stat_result) -> bool:
    """Whether every user may write."""
    return bool(status.st_mode & stat.S_IWOTH)


def permitted(path: str, need: int) -> bool:
    """Whether the kernel permits this access."""
    return os.access(path, need, effective_ids=os.access in os.supports_effective_ids)


def shared(path: str, status: os.stat_result, need: int) -> bool:
    """Whether a stranger shares it with this user explicitly."""
    if os.geteuid():
        return permitted(path, need)  # this respects access control lists, too
    # Root may do anything, so the mode decides what the owner shares.
    groups = {os.getegid(), *os.getgroups()}
    given = status.st_mode >> 3 if status.st_gid in groups else status.st_mode
    return given & need == need
