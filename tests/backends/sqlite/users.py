"""Preparing a location as another user, in a process that drops its rights."""

import os
import stat
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

NOBODY = 65534
OTHER = 54001
GROUP = 54000
# The imports come first: the other user may not be able to read this source tree.
_PROGRAM = """
import os, sys
from leaselock._backends.sqlite import file_path, location
from leaselock.errors import NotApplied

uid, gid, umask, groups, *paths = sys.argv[1:]
os.umask(int(umask, 8))
if os.geteuid() == 0:
    os.setgroups([int(group) for group in groups.split()])
    os.setgid(int(gid))
    os.setuid(int(uid))
print("ready", flush=True)
sys.stdin.readline()
for path in paths:
    try:
        print(location.prepare(path or file_path.path_of("sqlite:///")))
    except (NotApplied, ValueError) as error:
        print(f"{type(error).__name__}:", error)
"""

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


class User(NamedTuple):
    """A user, its groups, and its umask."""

    uid: int = NOBODY
    groups: tuple[int, ...] = ()
    umask: int = 0o022


ROOT = User(0)


def prepare_as(user: User, *paths: str, env: dict[str, str] | None = None) -> str:
    """The result or error of `prepare`; '' is the default path. Without root, as the own user."""
    return race([user], paths, env)[0]


def race(
    users: Iterable[User], paths: Sequence[str], env: dict[str, str] | None = None
) -> list[str]:
    """Let all users prepare the same paths at the same time, and return what each one got."""
    started = [_start(user, paths, env) for user in users]
    for process in started:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in started:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in started]
    assert [process.returncode for process in started] == [0] * len(started)
    return answers


def command(user: User, *paths: str) -> list[str]:
    """Start the program, which writes "ready", waits for a line, and then calls `prepare`."""
    groups = " ".join(map(str, user.groups))
    settings = [str(user.uid), str(user.uid), f"{user.umask:o}", groups]
    return [sys.executable, "-c", _PROGRAM, *settings, *paths]


def _start(user: User, paths: Sequence[str], env: dict[str, str] | None) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(user, *paths),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | (env or {}),
    )


def make(path: Path, mode: int, uid: int = -1, gid: int = -1) -> Path:
    """An empty file."""
    path.touch()
    return give(path, mode, uid, gid)


def give(path: Path, mode: int, uid: int = -1, gid: int = -1) -> Path:
    """Set the owner, the group and the mode."""
    if (uid, gid) != (-1, -1):
        os.chown(path, uid, gid)
    path.chmod(mode)
    return path


def attributes(path: Path) -> tuple[int, int, int]:
    """The mode, the owner and the group."""
    found = path.lstat()
    return stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
