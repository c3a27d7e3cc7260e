"""The lock file and its directory of clients on Windows: created if missing, refused if unsuitable.

Access control lists are not read: in the profile of a user only that user and administrators can
write. A file elsewhere has the rights that its folder passes on.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import ctypes
import os
import stat
from typing import TYPE_CHECKING

from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Mapping

ELSEWHERE = (
    "or set LEASELOCK_URL to a file on a local disk (sqlite:///C:/path/locks.db), or to a "
    "server store"
)
DRIVE_REMOTE = 4
# Left from \\?\C:\folder, as long paths are written.
PREFIX = "\\\\?\\"


def default_folder(env: Mapping[str, str]) -> str:
    """The folder of the file that is used without a URL.

    Not below AppData: there Windows gives each Python of the Microsoft Store files of its own, so
    two interpreters of one user would not exclude each other.
    """
    home = env.get("USERPROFILE", "")
    if not os.path.isabs(home):
        raise ValueError(
            "no URL was given that names a store, and the default file cannot be placed: "
            "USERPROFILE is not an absolute path: set LEASELOCK_URL"
        )
    return os.path.join(home, ".leaselock")


def drive_type(root: str) -> int:
    """Return what the system says of a drive."""
    return int(ctypes.windll.kernel32.GetDriveTypeW(root))


def _real_folder(folder: str) -> str:
    """The folder with its links resolved; NotApplied if other hosts can see it."""
    real = os.path.realpath(folder, strict=True)
    plain = real.removeprefix(PREFIX)
    drive = os.path.splitdrive(plain)[0]
    unc = plain.startswith(("\\\\", "UNC\\"))
    if unc or drive_type(f"{drive}\\") == DRIVE_REMOTE:
        raise NotApplied(
            f"{folder!r} is on a network drive ({real!r}): SQLite's write-ahead log needs memory "
            "that all its processes share, so they must be on one host: use a folder on a local "
            f"disk, {ELSEWHERE}",
            "misconfigured",
        )
    return real


def create(path: str) -> tuple[str, str, os.stat_result]:
    """Create the file and the directory of clients if they are missing; return the real paths of
    both, and the attributes of the file.
    """
    folder, name = os.path.split(path)
    if folder == _default_folder():
        os.makedirs(folder, exist_ok=True)
    elif not os.path.isdir(folder):
        raise NotApplied(
            f"there is no directory {folder!r}: make it (mkdir), {ELSEWHERE}", "misconfigured"
        )
    real = os.path.join(_real_folder(folder), name)
    _create_file(real)
    status = _checked(real)
    clients = real + ".clients"
    os.makedirs(clients, exist_ok=True)
    return real, clients, status


def _default_folder() -> str:
    try:
        return default_folder(os.environ)
    except ValueError:  # there is no default folder
        return ""


def _create_file(path: str) -> None:
    # Closing it releases no locks of SQLite on this system.
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return


def _checked(path: str) -> os.stat_result:
    """The attributes of the file; NotApplied if it is none, or has a second name."""
    status = os.lstat(path)
    reparse = getattr(status, "st_reparse_tag", 0)
    if not stat.S_ISREG(status.st_mode) or reparse:
        raise NotApplied(f"{path!r} is a link or not a file: choose another name, {ELSEWHERE}")
    if status.st_nlink > 1:
        raise NotApplied(
            f"{path!r} has {status.st_nlink} hard links: remove the others, {ELSEWHERE}"
        )
    return status
