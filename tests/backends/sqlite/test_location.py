"""The place of the lock file: how it is made, and whether it is still the same."""

import os
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from tests.backends.sqlite.users import User, prepare_as, race

from leaselock._backends.sqlite import creation, file_path, location
from leaselock.errors import NotApplied


def mode_of(path: str | Path) -> int:
    return stat.S_IMODE(os.lstat(path).st_mode)


@pytest.fixture
def umask() -> Iterator[Callable[[int], int]]:
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


# ------------------------------------------------------------------------------ making the files


@pytest.mark.parametrize("mask", [0, 0o022, 0o077, 0o177])
def test_the_default_directory_is_private(
    mask: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: Callable[[int], int]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "a" / "b"))
    umask(mask)
    found = location.prepare(file_path.path_of("sqlite:///"))
    file = tmp_path / "a" / "b" / "leaselock" / "locks.db"
    assert found[:2] == (str(file), f"{file}.clients")
    made = [tmp_path / "a", tmp_path / "a" / "b", file.parent, Path(found.clients)]
    assert [mode_of(path) for path in made] == [0o700] * 4
    assert mode_of(file) == 0o600
    assert file.read_bytes() == b""


@pytest.mark.parametrize("mask", [0, 0o077, 0o177])
def test_any_umask_of_an_ordinary_user(mask: int, public: Path) -> None:
    public.chmod(0o1777)
    answer = prepare_as(User(umask=mask), "", env={"XDG_STATE_HOME": f"{public}/a/b"})
    assert answer.startswith(f"Location(path='{public}/a/b/leaselock/locks.db'")


def test_only_a_missing_default_directory_is_created(tmp_path: Path) -> None:
    with pytest.raises(NotApplied, match=r"no directory .*/a/b': make it"):
        location.prepare(f"{tmp_path}/a/b/locks.db")
    assert list(tmp_path.iterdir()) == []


def test_prepare_again_finds_the_same_and_touches_nothing(tmp_path: Path) -> None:
    file = tmp_path / "locks.db"
    first = location.prepare(str(file))
    file.write_bytes(b"contents")
    before = os.stat(file)
    assert location.prepare(str(file)) == first
    assert os.stat(file)[:9] == before[:9]  # all but ctime, which is behind
    assert file.read_bytes() == b"contents"


def test_two_paths_to_one_file_are_one_location(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    direct = location.prepare(f"{tmp_path}/real/locks.db")
    assert location.prepare(f"{tmp_path}/link/locks.db") == direct
    assert location.prepare(f"{tmp_path}/link/../real/./locks.db") == direct


@pytest.mark.parametrize("mask", [0, 0o077])
def test_concurrent_creation_of_a_location(mask: int, public: Path) -> None:
    public.chmod(0o1777)
    paths = ["", *(f"{public}/{n}.db" for n in range(20))]
    users = [User(umask=mask) for _ in range(8)]
    answers = race(users, paths, {"XDG_STATE_HOME": f"{public}/a/b/c"})
    assert "NotApplied" not in answers[0]
    assert len(answers[0].splitlines()) == 21
    assert set(answers) == {answers[0]}


HOSTILE = [
    b"a b",
    b"a\nb",
    b"\x1b[2J",
    b"'\"; DROP TABLE x",
    b"file:x?mode=memory",
    b"100%25",
    b"a#b",
    b"..a",
    b"-rf",
    b"\xff\xfe",
    "\u202e\u2028é".encode(),
    b" ",
    b"x" * 240,
    b"\\040",
    b"%s%n{0}",
]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names(name: bytes, tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/" + name
    found = location.prepare(file_path.path_of(f"sqlite:///{quote_from_bytes(path)}"))
    assert os.fsencode(found.path) == path
    assert location.unchanged(found)
    assert sorted(os.listdir(os.fsencode(tmp_path))) == [name, name + b".clients"]
    os.link(path, path[:-1] + b"2")
    with pytest.raises(NotApplied) as refusal:
        location.prepare(found.path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250])
def test_a_name_too_long_for_the_file_system(name: str, tmp_path: Path) -> None:
    with pytest.raises(NotApplied, match=r"cannot use .* for locks: .*File name too long"):
        location.prepare(f"{tmp_path}/{name}")


def test_creating_the_file_with_open(tmp_path: Path) -> None:
    """The way for systems where only root may call mknod."""
    file, link = tmp_path / "locks.db", tmp_path / "link.db"
    link.symlink_to("target")
    for path in (file, file, link):
        creation._create_open(str(path))
    assert mode_of(file) == 0o600
    assert not (tmp_path / "target").exists()


# ------------------------------------------------------------------------------ SQLite's locks


def locked_for_others(file: Path) -> bool:
    program = (
        "import sqlite3, sys\n"
        "with sqlite3.connect(sys.argv[1], timeout=0) as other: other.execute('BEGIN EXCLUSIVE')"
    )
    command = [sys.executable, "-c", program, str(file)]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True)
    return "database is locked" in done.stderr


def test_prepare_keeps_the_locks_of_this_process(tmp_path: Path) -> None:
    file = tmp_path / "locks.db"
    location.prepare(str(file))
    connection = sqlite3.connect(file, isolation_level=None)
    connection.execute("BEGIN EXCLUSIVE")
    location.prepare(str(file))
    assert locked_for_others(file)
    file.open("rb").close()  # what it must not do
    assert not locked_for_others(file)
    connection.close()


# ------------------------------------------------------------------------------ still the same?


def test_unchanged_while_the_file_stays(tmp_path: Path) -> None:
    found = location.prepare(f"{tmp_path}/locks.db")
    Path(found.path).write_bytes(b"new contents")
    assert location.unchanged(found)


def _unlink(file: Path) -> None:
    file.unlink()


def _replace(file: Path) -> None:
    other = file.with_name("other")
    other.touch()
    other.replace(file)


def _link_to_itself(file: Path) -> None:
    file.rename(file.with_name("moved"))
    file.symlink_to("moved")


def _move_directory(file: Path) -> None:
    file.parent.rename(file.parent.with_name("moved"))


def _directory_to_file(file: Path) -> None:
    _move_directory(file)
    file.parent.touch()


@pytest.mark.parametrize(
    "change", [_unlink, _replace, _link_to_itself, _move_directory, _directory_to_file]
)
def test_changed(change: Callable[[Path], None], tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    file = tmp_path / "in" / "locks.db"
    found = location.prepare(str(file))
    with file.open():  # or the file system could give its inode to the next one
        change(file)
        assert not location.unchanged(found)
