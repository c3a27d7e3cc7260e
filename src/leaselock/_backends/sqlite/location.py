"""The location of the lock file: its path, its directory, and its file system.

This module neither opens SQLite nor an existing database file. If SQLite has the file open in this
process, closing a second descriptor of it releases the locks of SQLite.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from leaselock._backends.sqlite import host_checks, permissions
from leaselock._backends.sqlite.host_checks import boot
from leaselock._backends.sqlite.permissions import ELSEWHERE
from leaselock._backends.url import parse
from leaselock._named_tuple import NamedTuple
from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leaselock._core.backend import ErrorReason

__all__ = [
    "Location",
    "boot",
    "check_mount",
    "default_path",
    "log_of",
    "path_of",
    "prepare",
    "unchanged",
]

_EXAMPLE = "sqlite:///locks.db (relative) or sqlite:////var/lib/app/locks.db (absolute)"
_PRIVATE = 0o700


class Location(NamedTuple):
    """A suitable database file, and the directory of its clients."""

    path: str
    clients: str
    device: int
    inode: int


def default_path(env: Mapping[str, str]) -> str:
    """The file that is used without a URL."""
    state = env.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the XDG specification ignores a relative path
        state = os.path.join(_home(env), ".local", "state")
    return os.path.join(state, "leaselock", "locks.db")


def _home(env: Mapping[str, str]) -> str:
    home = env.get("HOME", "")
    if os.path.isabs(home):
        return home
    import pwd

    try:
        home = pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:  # a user id without an account, as containers have them
        home = ""
    if os.path.isabs(home):
        return home
    raise ValueError(
        "no URL was given that names a store, and the default file cannot be placed: user "
        f"{os.geteuid()} has no home directory, and neither XDG_STATE_HOME nor HOME is an absolute "
        "path: set LEASELOCK_URL"
    )


def path_of(text: str) -> str:
    """The absolute path that a sqlite URL names; its options are ignored here."""
    url = parse(text)
    if url.scheme != "sqlite" or "://" not in text:
        raise ValueError(f"not a sqlite URL: write {_EXAMPLE}")
    if url.fragment is not None:
        raise ValueError("a '#' in a sqlite URL: write %23 where the file name has one")
    path = _unquote(url.path.removeprefix("/"))
    if ":memory:" in (url.authority, path):
        raise ValueError("no :memory: in a sqlite URL: write memory:// for locks in one process")
    if url.authority or not url.path:
        raise ValueError(
            "a sqlite URL has three slashes and no host: "
            f"write {_EXAMPLE}, or sqlite:/// for the default file"
        )
    if url.path.startswith("/~/"):
        from urllib.parse import quote

        home = quote(os.path.expanduser(path))
        raise ValueError(f"a URL has no ~ for the home directory: write sqlite:///{home}")
    return _absolute(path) if path else default_path(os.environ)


def _unquote(text: str) -> str:
    """Percent-decoding to the exact bytes of a file name, UTF-8 or not."""
    try:
        decoded, *others = os.fsencode(text).split(b"%")
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{text!r} cannot be encoded as a file name: write %XX for each byte"
        ) from error
    for other in others:
        digits = other[:2].decode("latin-1")
        if len(digits) != 2 or digits.strip("0123456789abcdefABCDEF"):
            raise ValueError(f"a '%' without two hex digits in {text!r}: write %25 for a '%'")
        decoded += bytes.fromhex(digits) + other[2:]
    return os.fsdecode(decoded)


def _absolute(path: str) -> str:
    if "\0" in path:
        raise ValueError(f"a file name cannot have a NUL in it: write {_EXAMPLE}")
    if os.path.basename(path) in ("", ".", "..") or os.path.isdir(path):
        raise ValueError(f"{path!r} is a directory: add the name of a file, as in {_EXAMPLE}")
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except FileNotFoundError as error:
        raise ValueError(
            f"the current directory is gone: write an absolute path, not {path!r}, as in {_EXAMPLE}"
        ) from error


def prepare(path: str) -> Location:
    """Create the file and the directory of clients if missing; refuse an unsuitable location."""
    try:
        real, parent = _located(path)
        _create(real)
        status = os.lstat(real)
        permissions.check_file(real, status, parent)
        return Location(real, _clients(real, status, parent), status.st_dev, status.st_ino)
    except OSError as error:
        reason: ErrorReason = "denied" if isinstance(error, PermissionError) else "refused"
        raise NotApplied(
            f"cannot use {path!r} for locks: {error}: correct that, {ELSEWHERE}", reason
        ) from error


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


def _located(path: str) -> tuple[str, os.stat_result]:
    """The path free of symbolic links down to the file, and the attributes of its directory."""
    directory, name = os.path.split(path)
    if _is_default(path):
        _make_parents(directory)
    elif not _is_directory(directory):
        raise NotApplied(f"there is no directory {directory!r}: make it (mkdir), {ELSEWHERE}")
    permissions.check_links(directory)
    # From here on, changing a link has no effect.
    directory = os.path.realpath(directory, strict=True)
    status = os.lstat(directory)
    real = os.path.join(directory, name)
    permissions.check_directory(directory, status)
    check_mount(host_checks.mounts(), real, status.st_dev)
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


def _is_default(path: str) -> bool:
    try:
        return path == default_path(os.environ)
    except ValueError:  # there is no default path
        return False


def check_mount(table: list[host_checks.Mount], path: str, device: int) -> None:
    """Refuse a file that other hosts can see. *device* is that of its directory."""
    if any(mount.point == path for mount in table):
        raise NotApplied(
            f"{path!r} is a mount of its own, so processes that see it elsewhere do not see the "
            "files that SQLite keeps beside it: mount its directory instead"
        )
    mount = host_checks.mount_of(table, os.path.dirname(path), device)
    if mount is not None and host_checks.is_shared(mount.type):
        raise NotApplied(
            f"{path!r} is on a network or shared file system ({mount.type} on {mount.point!r}): "
            "SQLite's write-ahead log needs memory that all its processes share, so they must be "
            "on one host: set LEASELOCK_URL to a file on a local disk of that host "
            "(sqlite:////path/locks.db), or to a server store",
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


def _create(path: str) -> None:
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
            f"{clients!r} is a link or a file, not a directory: remove it, {ELSEWHERE}"
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
