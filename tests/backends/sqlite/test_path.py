"""The path of the lock file: the default one, and that of a URL."""

import os
import pwd
import re
from pathlib import Path
from urllib.parse import quote_from_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.backends.sqlite.users import User, prepare_as, root_only

from leaselock._backends.sqlite import file_path

# ------------------------------------------------------------------------------ the default path


def test_default_is_under_the_state_home() -> None:
    env = {"XDG_STATE_HOME": "/state", "HOME": "/home/x"}
    assert file_path.default_path(env) == "/state/leaselock/locks.db"


@pytest.mark.parametrize("state", ["", "state", "./state", "~/state"])
def test_a_relative_state_home_is_ignored(state: str) -> None:
    env = {"XDG_STATE_HOME": state, "HOME": "/home/x"}
    assert file_path.default_path(env) == "/home/x/.local/state/leaselock/locks.db"


@pytest.mark.parametrize("env", [{}, {"HOME": ""}, {"HOME": "home/x"}])
def test_without_home_the_account_decides(env: dict[str, str]) -> None:
    home = pwd.getpwuid(os.geteuid()).pw_dir
    assert file_path.default_path(env) == f"{home}/.local/state/leaselock/locks.db"


@root_only
def test_without_home_and_account_there_is_no_default() -> None:
    answer = prepare_as(User(54321), "", env={"HOME": "", "XDG_STATE_HOME": ""})
    assert re.search("ValueError: no URL was given .* 54321 has no home .* LEASELOCK_URL", answer)


# ------------------------------------------------------------------------------ the path of a URL


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:////var/lib/locks.db", "/var/lib/locks.db"),
        ("SQLite:////var/lib/locks.db", "/var/lib/locks.db"),
        ("sqlite:////var/lib/locks.db?lease=3&a=/b", "/var/lib/locks.db"),
        ("sqlite:///%2Fvar/lib/locks.db", "/var/lib/locks.db"),
        ("sqlite:////a%20b/%23%3f%25.db", "/a b/#?%.db"),
        ("sqlite:////%C3%A9/é.db", "/é/é.db"),
        ("sqlite:////%ff.db", os.fsdecode(b"/\xff.db")),
        ("sqlite:////\udcff.db", os.fsdecode(b"/\xff.db")),
        ("sqlite:////nowhere/:memory:", "/nowhere/:memory:"),
    ],
)
def test_path_of_an_absolute_url(url: str, path: str) -> None:
    assert file_path.path_of(url) == path


@pytest.mark.parametrize("url", ["sqlite:///", "sqlite:///?sync=full"])
def test_path_of_the_empty_url_is_the_default(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert file_path.path_of(url) == "/state/leaselock/locks.db"


@pytest.mark.parametrize("name", ["locks.db", "a/b.db", "file:x", "-rf", "~x", "\n", "C:\\x"])
def test_path_of_a_relative_url(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert file_path.path_of(f"sqlite:///{name}") == f"{tmp_path}/{name}"


@given(
    st.binary(min_size=1).filter(lambda name: not {0, 47} & {*name} and name not in (b".", b".."))
)
def test_every_file_name_has_a_url(name: bytes) -> None:
    path = b"/nowhere/" + name
    assert os.fsencode(file_path.path_of(f"sqlite:///{quote_from_bytes(path)}")) == path


@pytest.mark.parametrize(
    ("url", "advice"),
    [
        ("sqlite:locks.db", "write sqlite:///locks.db"),
        ("postgres:////locks.db", "write sqlite:///locks.db"),
        ("sqlite://", "sqlite:/// for the default"),
        ("sqlite://?a=b", "sqlite:/// for the default"),
        ("sqlite://locks.db", "write sqlite:///locks.db"),
        ("sqlite://host/locks.db", "no host: write sqlite:///locks.db"),
        ("sqlite://user@host:1/locks.db", "no host: write sqlite:///locks.db"),
        ("sqlite://:memory:", "write memory://"),
        ("sqlite:///:memory:", "write memory://"),
        ("sqlite:///%3amemory:", "write memory://"),
        ("sqlite:////", "add the name of a file"),
        ("sqlite:////tmp", "add the name of a file"),
        ("sqlite:////nowhere/", "add the name of a file"),
        ("sqlite:///.", "add the name of a file"),
        ("sqlite:///a/..", "add the name of a file"),
        ("sqlite:////a%00b", "NUL in it: write"),
        ("sqlite:////a\0b", "NUL in it: write"),
        ("sqlite:////a#b", "write %23"),
        ("sqlite:////100%.db", "write %25"),
        ("sqlite:////%zz", "write %25"),
        ("sqlite:////%+1", "write %25"),
        ("sqlite:////%  x", "write %25"),
        ("sqlite:////%\u0661\u0661", "write %25"),
        ("sqlite:////\ud800", "write %XX"),
    ],
)
def test_a_wrong_url_says_what_to_write(url: str, advice: str) -> None:
    with pytest.raises(ValueError, match=re.escape(advice)):
        file_path.path_of(url)


def test_a_relative_url_in_a_removed_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.rmdir()
    with pytest.raises(ValueError, match="write an absolute path"):
        file_path.path_of("sqlite:///locks.db")
