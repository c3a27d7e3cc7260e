"""The files next to the lock file: SQLite's own files, and the directory of clients."""

import os
import stat
from pathlib import Path

import pytest
from tests.backends.sqlite.users import (
    GROUP,
    NOBODY,
    OTHER,
    ROOT,
    User,
    attributes,
    give,
    make,
    prepare_as,
    race,
    root_only,
)

from leaselock._backends.sqlite import creation, location
from leaselock.errors import NotApplied


def test_a_linked_log(tmp_path: Path) -> None:
    (tmp_path / "locks.db-wal").symlink_to("elsewhere")
    with pytest.raises(NotApplied, match=r"locks.db-wal' is not a regular file: remove it"):
        location.prepare(f"{tmp_path}/locks.db")


@root_only
@pytest.mark.parametrize("suffix", ["-wal", "-shm", "-journal", ".clients"])
def test_another_users_file_next_to_the_database_in_tmp(suffix: str, public: Path) -> None:
    public.chmod(0o1777)
    companion = public / f"locks.db{suffix}"
    (Path.mkdir if suffix == ".clients" else Path.touch)(companion)
    os.chown(companion, OTHER, OTHER)
    for user in (ROOT, User()):
        answer = prepare_as(user, f"{public}/locks.db")
        assert f"'{companion}' belongs to another user, {OTHER}, in a directory" in answer
        (public / "locks.db").unlink()
    os.chown(companion, NOBODY, NOBODY)
    assert prepare_as(User(), f"{public}/locks.db").startswith("Location")


def test_clients_that_are_a_file(tmp_path: Path) -> None:
    (tmp_path / "locks.db.clients").touch()
    with pytest.raises(NotApplied, match=r"locks.db.clients' is a link or a file"):
        location.prepare(f"{tmp_path}/locks.db")


@pytest.mark.parametrize("target", ["elsewhere", "nowhere"])
def test_clients_that_are_a_link(target: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "locks.db.clients").symlink_to(target)
    with pytest.raises(NotApplied, match=r"locks.db.clients' is a link or a file"):
        location.prepare(f"{tmp_path}/locks.db")
    assert stat.S_IMODE((tmp_path / "elsewhere").stat().st_mode) == 0o755
    assert not (tmp_path / "nowhere").exists()


def test_a_link_created_during_the_check_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(NotADirectoryError):
        creation._set_mode(f"{tmp_path}/link", 0o700, -1)


@root_only
def test_a_clients_directory_of_another_user(public: Path) -> None:
    clients = public / "locks.db.clients"
    clients.mkdir()
    give(clients, 0o700, OTHER)
    assert f"'{clients}' belongs to user {OTHER}" in prepare_as(ROOT, f"{public}/locks.db")


@pytest.mark.parametrize(
    ("mode", "clients"),
    [
        (0o600, 0o700),
        (0o640, 0o700),
        (0o644, 0o700),
        (0o660, 0o2770),
        (0o664, 0o2770),
        (0o666, 0o777),
        (0o606, 0o707),
    ],
)
@pytest.mark.parametrize("before", [None, 0o700, 0o755, 0o2777])
def test_the_mode_of_clients_follows_the_file(
    mode: int, clients: int, before: int | None, tmp_path: Path
) -> None:
    file = make(tmp_path / "locks.db", mode)
    if before is not None:
        (tmp_path / "locks.db.clients").mkdir()
        (tmp_path / "locks.db.clients").chmod(before)
    found = location.prepare(str(file))
    assert attributes(Path(found.clients)) == (clients, os.geteuid(), file.stat().st_gid)


@root_only
def test_the_group_of_clients_follows_the_file(public: Path) -> None:
    make(public / "locks.db", 0o660, -1, GROUP)
    prepare_as(ROOT, f"{public}/locks.db")
    assert attributes(public / "locks.db.clients") == (0o2770, 0, GROUP)


@root_only
def test_a_group_that_this_user_cannot_set(public: Path) -> None:
    give(public, 0o1777)
    file = make(public / "locks.db", 0o660, NOBODY, GROUP)
    answer = prepare_as(User(), str(file))
    assert f"cannot give '{file}.clients' the group {GROUP}" in answer


@root_only
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_a_race_of_several_users_for_a_shared_file(umask: int, public: Path) -> None:
    give(public, 0o2770, 0, GROUP)
    paths = [str(make(public / f"{n}.db", 0o660, 0, GROUP)) for n in range(20)]
    users = [User(uid, (GROUP,), umask) for uid in (0, OTHER, OTHER + 1, NOBODY) * 2]
    answers = race(users, paths)
    assert "NotApplied" not in answers[0]
    assert set(answers) == {answers[0]}
    for path in paths:
        mode, _, group = attributes(Path(f"{path}.clients"))
        assert (mode, group) == (0o2770, GROUP)
