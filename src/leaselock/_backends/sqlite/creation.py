"""The lock file and its directory of clients: created if missing, refused if unsuitable.

This module neither opens SQLite nor an existing database file. If SQLite has the file open in this
process, closing a second descriptor of it releases the locks of SQLite.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import os
import stat

from leaselock._backends.sqlite import host_checks, permissions
from leaselock._backends.sqlite.file_path import is_default
from leaselock._backends.sqlite.permissions import ELSEWHERE
from leaselock.errors import NotApplied

if sys.platform == "darwin":
    from leaselock._backends.sqlite import host_macos

__all__ = ["ELSEWHERE", "check_mount", "create"]

_PRIVATE = 0o700


def create(path: str) -> tuple[str, str, os.stat_result]:
    """Create the file and the directory of clients if they are missing; return the real paths of
    both, and the attributes of the file.
    """
    real, parent = _located(path)
    _create_file(real)
    status = os.lstat(real)
    permissions.check_file(real, status, parent)
    return real, _clients(real, status, parent), status


def _located(path: str) -> tuple[str, os.stat_result]:
    """The path free of symbolic links down to the file, and the attributes of its directory."""
    directory, name = os.path.split(path)
    if is_default(path):
        _make_parents(directory)
    elif not _is_directory(directory):
        raise NotApplied(
            f"there is no directory {directory!r}: make it (mkdir), {ELSEWHERE}", "misconfigured"
        )
    permissions.check_links(directory)
    # From here on, changing a link has no effect.
    directory = os.path.realpath(directory, strict=True)
    status = os.lstat(directory)
    real = os.path.join(directory, name)
    permissions.check_directory(directory, status)
    check_mount(host_checks.mounts(), real, status.st_dev)
    if sys.platform == "darwin" and (kind := host_macos.network_type(directory)):
        raise _shared(real, kind)
    return real, status


def _is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except PermissionError as error:
        raise NotApplied(
            f"permission denied: user {os.geteuid()} may not enter a directory above {path!r}: "
            f"change its mode, {ELSEWHERE}",
            "denied",
        ) from error
    except OSError:
        return False


def check_mount(table: list[host_checks.Mount], path: str, device: int) -> None:
    """Refuse a file that other hosts can see. *device* is that of its directory."""
    if any(mount.point == path for mount in table):
        raise NotApplied(
            f"{path!r} is a mount of its own, so processes that see it elsewhere do not see the "
            "files that SQLite keeps beside it: mount its directory instead",
            "misconfigured",
        )
    mount = host_checks.mount_of(table, os.path.dirname(path), device)
    if mount is not None and host_checks.is_shared(mount.type):
        raise _shared(path, f"{mount.type} on {mount.point!r}")


def _shared(path: str, file_system: str) -> NotApplied:
    return NotApplied(
        f"{path!r} is on a network or shared file system ({file_system}): SQLite's write-ahead log "
        "needs memory that all its processes share, so they must be on one host: set "
        "LEASELOCK_URL to a file on a local disk of that host (sqlite:////path/locks.db), or to a "
        "server store",
        "misconfigured",
    )


def _make_parents(directory: str) -> None:
    if os.path.isdir(directory):
        return
    above = os.path.dirname(directory)
    _make_parents(above)
    # Not in the home directory of a stranger: sudo keeps HOME, and a directory of root there would
    # lock out its user.
    permissions.check_links(above)
    permissions.check_directory(above, os.stat(above))
    _make_directory(directory, _PRIVATE)


def _make_directory(path: str, mode: int, group: int = -1) -> None:
    try:
        os.mkdir(path, mode & 0o777)
    except FileExistsError:
        return
    _set_mode(path, mode, group)


def _set_mode(path: str, mode: int, group: int) -> None:
    """Give our directory its group and mode, independently of the umask."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        if group not in (-1, os.fstat(descriptor).st_gid):
            os.chown(descriptor, -1, group)
        os.chmod(descriptor, mode)
    except PermissionError as error:
        raise NotApplied(
            f"cannot give {path!r} the group {group} and mode {mode:o} of its database file: "
            f"let root do it (chgrp {group}, chmod {mode:o}), {ELSEWHERE}",
            "denied",
        ) from error
    finally:
        os.close(descriptor)


def _create_file(path: str) -> None:
    # mknod() opens nothing. After open(), another thread could lock the file through SQLite before
    # this one closes its descriptor, which would release those locks.
    try:
        os.mknod(path, stat.S_IFREG | 0o600)
    except FileExistsError:
        return
    except PermissionError:  # some systems permit this to root only
        _create_open(path)


def _create_open(path: str) -> None:
    try:
        # Never closed, for the reason above. This happens once for each database file.
        os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return


def _clients(path: str, database: os.stat_result, parent: os.stat_result) -> str:
    clients = path + ".clients"
    mode = _clients_mode(database.st_mode)
    group = database.st_gid if mode & stat.S_ISGID else -1
    _make_directory(clients, mode, group)
    status = os.lstat(clients)
    if not stat.S_ISDIR(status.st_mode):
        raise NotApplied(
            f"{clients!r} is a link or a file, not a directory: remove it, {ELSEWHERE}",
            "misconfigured",
        )
    permissions.check_stranger(clients, status, database, parent)
    if status.st_uid == os.geteuid():
        if stat.S_IMODE(status.st_mode) != mode or group not in (-1, status.st_gid):
            _set_mode(clients, mode, group)
    elif not _becomes_usable(clients, database):
        raise NotApplied(
            f"{clients!r} belongs to user {status.st_uid} and is not open to user {os.geteuid()}: "
            f"let its owner give it mode {mode:o} and a group that user {os.geteuid()} is in, or "
            "remove it while no client runs",
            "denied",
        )
    return clients


def _clients_mode(mode: int) -> int:
    """The mode for the directory: every user of the database may use it."""
    if mode & 0o006 == 0o006:
        return 0o707 | (mode & 0o060 and 0o070)
    # Set-group-ID, so that the other members of the group can use a file that one of them creates.
    return 0o2770 if mode & 0o060 == 0o060 else _PRIVATE


def _becomes_usable(clients: str, database: os.stat_result) -> bool:
    """Whether this user may use it, now or when the process that creates it has set its mode."""
    import time

    for _ in range(500):  # the age alone is no limit if the clock is set
        status = os.lstat(clients)
        if permissions.usable(clients, status, database):
            return True
        if time.time() - status.st_ctime > 1.0:
            return False
        # There is no notification of a change of mode.
        time.sleep(0.002)
    return False
