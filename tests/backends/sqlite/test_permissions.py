"""Permissions of the folder of the lock file: links, other users, modes, mounts."""

import os
import re
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.backends.sqlite.users import (
    GROUP,
    NOBODY,
    OTHER,
    ROOT,
    User,
    command,
    give,
    make,
    prepare_as,
    root_only,
)

from leaselock._backends.sqlite import location
from leaselock.errors import NotApplied

# ------------------------------------------------------------------------------ the file itself


def _symlink(path: Path) -> None:
    path.with_name("target").touch()
    path.symlink_to("target")


def _dangling(path: Path) -> None:
    path.symlink_to("target")


def _hard_link(path: Path) -> None:
    path.touch()
    path.with_name("second").hardlink_to(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))


def _device(path: Path) -> None:
    path.symlink_to("/dev/full")


@pytest.mark.parametrize(
    ("lay", "reason"),
    [
        (_symlink, "is a symbolic link"),
        (_dangling, "is a symbolic link"),
        (_device, "is a symbolic link"),
        (_hard_link, "has 2 hard links"),
        (Path.mkdir, "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (_socket, "is not a regular file"),
    ],
)
def test_a_path_that_is_no_regular_file(
    lay: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "locks.db"
    lay(file)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(NotApplied, match=f"locks.db' {reason}.*LEASELOCK_URL"):
        location.prepare(str(file))
    assert sorted(tmp_path.iterdir()) == before


def test_a_file_without_write_permission(public: Path) -> None:
    public.chmod(0o1777)
    file = make(public / "locks.db", 0o444)
    assert f"may not read and write '{file}': change its mode" in prepare_as(User(), str(file))


@root_only
def test_a_strangers_private_file_even_for_root(public: Path) -> None:
    file = make(public / "locks.db", 0o600, OTHER)
    answer = prepare_as(ROOT, str(file))
    assert re.search(f"NotApplied: '{file}' belongs to user {OTHER}, not to user 0: run as", answer)


@root_only
@pytest.mark.parametrize(
    ("mode", "groups", "fit"),
    [(0o666, (), True), (0o660, (GROUP,), True), (0o660, (), False), (0o640, (GROUP,), False)],
)
def test_a_strangers_file_that_is_shared(
    mode: int, groups: tuple[int, ...], fit: bool, public: Path
) -> None:
    give(public, 0o2770, 0, GROUP + 1)
    file = make(public / "locks.db", mode, OTHER, GROUP)
    for uid in (0, NOBODY):
        answer = prepare_as(User(uid, (*groups, GROUP + 1)), str(file))
        assert answer.startswith("Location" if fit else "NotApplied: ")


@root_only
def test_a_strangers_file_in_a_world_writable_directory(public: Path) -> None:
    public.chmod(0o1777)
    file = make(public / "locks.db", 0o666, OTHER)
    assert f"belongs to user {OTHER}" in prepare_as(User(), str(file))
    os.chown(file, 0, 0)
    assert prepare_as(User(), str(file)).startswith("Location")


# ------------------------------------------------------------------------------ its directory


def test_a_directory_where_every_user_can_replace_files(public: Path) -> None:
    public.chmod(0o777)
    with pytest.raises(
        NotApplied, match=r"every user can replace files .* \(chmod o-w, or chmod \+t\)"
    ):
        location.prepare(f"{public}/locks.db")
    assert list(public.iterdir()) == []
    public.chmod(0o1777)
    location.prepare(f"{public}/locks.db")


def test_a_directory_without_write_permission(public: Path) -> None:
    public.chmod(0o555)
    answer = prepare_as(User(), f"{public}/locks.db")
    assert f"may not read and write the directory '{public}'" in answer or "belongs to" in answer


def test_a_file_in_place_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(NotApplied, match="no directory"):
        location.prepare(f"{tmp_path}/file/locks.db")


@root_only
@pytest.mark.parametrize(
    ("mode", "groups", "fit"),
    [
        (0o755, (), False),
        (0o1777, (), False),  # its owner can replace what is in it
        (0o2770, (GROUP,), True),
        (0o2770, (), False),
    ],
)
def test_a_strangers_directory(mode: int, groups: tuple[int, ...], fit: bool, public: Path) -> None:
    directory = public / "in"
    directory.mkdir()
    give(directory, mode, OTHER, GROUP)
    for uid in (0, NOBODY):
        answer = prepare_as(User(uid, groups), f"{directory}/{uid}.db")
        assert answer.startswith("Location" if fit else "NotApplied: "), answer


@root_only
def test_no_default_file_in_a_strangers_home(public: Path) -> None:
    home = public / "home"
    home.mkdir()
    give(home, 0o755, OTHER)
    answer = prepare_as(ROOT, "", env={"HOME": str(home), "XDG_STATE_HOME": ""})
    assert f"'{home}' belongs to user {OTHER}" in answer
    assert list(home.iterdir()) == []


@root_only
def test_no_default_file_behind_a_strangers_link(public: Path) -> None:
    home = public / "home"
    home.symlink_to("real")
    (public / "real").mkdir()
    os.lchown(home, OTHER, OTHER)
    answer = prepare_as(ROOT, "", env={"HOME": str(home), "XDG_STATE_HOME": ""})
    assert f"'{home}' is a symbolic link of user {OTHER}" in answer
    assert list((public / "real").iterdir()) == []


@root_only
@pytest.mark.parametrize("deep", ["", "/in/it"])
def test_a_strangers_link_in_the_path(deep: str, public: Path) -> None:
    (public / "real/in/it").mkdir(parents=True)
    (public / "link").symlink_to("real")
    path = f"{public}/link{deep}/locks.db"
    assert prepare_as(ROOT, path).startswith(f"Location(path='{public}/real{deep}/locks.db'")
    os.lchown(public / "link", OTHER, OTHER)
    assert f"'{public}/link' is a symbolic link of user {OTHER}" in prepare_as(ROOT, path)


def test_a_read_only_file_system(public: Path) -> None:
    program = 'mount -t tmpfs -o ro none "$1" || exit 77; exec "${@:2}"'
    answer = _in_namespace(program, public, public / "locks.db")
    assert f"'{public}' is on a read-only file system" in answer


def test_a_file_mounted_without_its_directory(public: Path) -> None:
    file = make(public / "locks.db", 0o600)
    program = 'touch "$1/other" && mount --bind "$1/other" "$1/locks.db" || exit 77; exec "${@:2}"'
    assert f"'{file}' is a mount of its own" in _in_namespace(program, public, file)


def test_a_network_file_system(public: Path) -> None:
    """The kernel's own table, as a host would show it that has its disks over NFS."""
    # The program has this shell's number, since it is run by exec.
    program = (
        "sed 's/ - [^ ]* / - nfs4 /' /proc/self/mountinfo >\"$1/table\" &&"
        ' mount --bind "$1/table" "/proc/$$/mountinfo" || exit 77; exec "${@:2}"'
    )
    answer = _in_namespace(program, public, public / "locks.db")
    assert re.search(r"on a network or shared file system \(nfs4 on .*LEASELOCK_URL", answer)
    assert [path.name for path in public.iterdir()] == ["table"]


def _in_namespace(program: str, directory: Path, file: Path) -> str:
    unshare = ["unshare", "--mount"] if os.geteuid() == 0 else ["unshare", "--mount", "-r"]
    arguments = ["bash", "-c", program, "bash", str(directory), *command(ROOT, str(file))]
    done = subprocess.run([*unshare, *arguments], input="\n", capture_output=True, text=True)
    if done.returncode in (1, 77) and "ready" not in done.stdout:
        pytest.skip(f"no mounts here: {done.stderr}")
    assert done.returncode == 0, done.stderr
    return done.stdout
