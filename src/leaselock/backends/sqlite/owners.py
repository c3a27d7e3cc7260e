"""Who could replace the lock file: no stranger may, and nobody by accident.

A stranger is any user but ourselves and root. He is let in where he shares on purpose.
"""

from __future__ import annotations

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
    """Refuse a way to the directory that a stranger can turn elsewhere."""
    prefix = directory
    while prefix != os.path.dirname(prefix):
        found = os.lstat(prefix)
        if stat.S_ISLNK(found.st_mode) and not trusted(found):
            raise NotApplied(
                f"{prefix!r} is a symbolic link of user {found.st_uid}, who could turn it "
                f"elsewhere: write the path it points to, {ELSEWHERE}"
            )
        prefix = os.path.dirname(prefix)


def check_directory(path: str, found: os.stat_result) -> None:
    """Refuse a directory where a stranger can replace files, or where we cannot make any."""
    if not stat.S_ISDIR(found.st_mode):
        raise NotApplied(f"{path!r} is not a directory: correct the path, {ELSEWHERE}")
    world = world_writable(found)
    if world and not found.st_mode & stat.S_ISVTX:
        raise NotApplied(
            f"anyone can replace files in {path!r}: take that away (chmod o-w, or chmod +t), or "
            f"make a directory in it (mkdir -m 700), {ELSEWHERE}"
        )
    if not trusted(found) and (world or not shared(path, found, DIRECTORY)):
        raise NotApplied(
            f"{path!r} belongs to user {found.st_uid}, not to user {os.geteuid()}: run as that "
            f"user, or share it through its group (chmod g+rwx), {ELSEWHERE}"
        )
    _check_writable(path)


def _check_writable(path: str) -> None:
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        raise NotApplied(f"{path!r} is on a read-only file system: mount it writable, {ELSEWHERE}")
    if not permitted(path, DIRECTORY):
        raise NotApplied(
            f"user {os.geteuid()} may not read and write the directory {path!r}, where SQLite "
            f"keeps files of its own: change its mode or owner, {ELSEWHERE}"
        )


def check_file(path: str, found: os.stat_result, parent: os.stat_result) -> None:
    """Refuse a database that is a stranger's, that we cannot use, or that has a second name."""
    if stat.S_ISLNK(found.st_mode):
        raise NotApplied(f"{path!r} is a symbolic link: write the path it points to, {ELSEWHERE}")
    if not stat.S_ISREG(found.st_mode):
        raise NotApplied(f"{path!r} is not a regular file: choose another name, {ELSEWHERE}")
    if found.st_nlink > 1:  # SQLite names its log after the file: two names, two logs, two holders
        raise NotApplied(
            f"{path!r} has {found.st_nlink} hard links: remove the others, {ELSEWHERE}"
        )
    if not trusted(found) and (world_writable(parent) or not shared(path, found, FILE)):
        raise NotApplied(
            f"{path!r} belongs to user {found.st_uid}, not to user {os.geteuid()}: run as that "
            f"user, or share it (chmod g+rw) in a directory of your group, {ELSEWHERE}"
        )
    if not permitted(path, FILE):
        raise NotApplied(
            f"user {os.geteuid()} may not read and write {path!r}: change its mode or its owner "
            f"(user {found.st_uid}), {ELSEWHERE}"
        )
    _check_beside(path, found, parent)


def _check_beside(path: str, database: os.stat_result, parent: os.stat_result) -> None:
    """SQLite would replay into the database whatever log it finds beside it."""
    for beside in (path + "-wal", path + "-shm", path + "-journal"):
        try:
            found = os.lstat(beside)
        except FileNotFoundError:
            continue
        if not stat.S_ISREG(found.st_mode):
            raise NotApplied(f"{beside!r} is not a regular file: remove it, {ELSEWHERE}")
        check_stranger(beside, found, database, parent)


def check_stranger(
    path: str, found: os.stat_result, database: os.stat_result, parent: os.stat_result
) -> None:
    """Refuse what anyone may have laid beside the database."""
    # Where only users whom the owner trusts can make files, one of them made it; in /tmp, anyone.
    if trusted(found) or found.st_uid == database.st_uid or not world_writable(parent):
        return
    raise NotApplied(
        f"{path!r} belongs to user {found.st_uid}, a stranger, in a directory that everyone can "
        f"write to: have it removed, {ELSEWHERE}"
    )


def usable(path: str, found: os.stat_result, database: os.stat_result) -> bool:
    """Whether we may use a directory of somebody who may use the database."""
    if trusted(found) or found.st_uid == database.st_uid:
        return permitted(path, DIRECTORY)
    return shared(path, found, DIRECTORY)


def trusted(found: os.stat_result) -> bool:
    """Whether it belongs to us or to root."""
    return found.st_uid in (0, os.geteuid())


def world_writable(found: os.stat_result) -> bool:
    """Whether anyone may write."""
    return bool(found.st_mode & stat.S_IWOTH)


def permitted(path: str, need: int) -> bool:
    """Whether the kernel would let us."""
    return os.access(path, need, effective_ids=os.access in os.supports_effective_ids)


def shared(path: str, found: os.stat_result, need: int) -> bool:
    """Whether a stranger meant us to use what is his."""
    if os.geteuid():
        return permitted(path, need)  # which knows access lists, too
    # Root may do anything; what counts is what it was given.
    groups = {os.getegid(), *os.getgroups()}
    given = found.st_mode >> 3 if found.st_gid in groups else found.st_mode
    return given & need == need
