"""Which store a command uses, and the ones that it refuses."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

import pytest
from tests.people import COMMAND, command

import leaselock

if TYPE_CHECKING:
    from pathlib import Path


def test_run_with_the_same_name_in_another_store_is_no_error(file: str, tmp_path: Path) -> None:
    other = f"sqlite:///{tmp_path}/other.db"
    inner = [*COMMAND, "run", "--url", other, "x", "--", "echo", "inside"]
    ended = command("run", "x", "--", *inner, url=file)
    assert (ended.returncode, ended.stdout) == (0, "inside\n"), ended


@pytest.mark.parametrize("words", [("ls",), ("run", "a", "--", "true"), ("doctor",)])
def test_empty_url_of_the_environment_is_an_error(words: tuple[str, ...]) -> None:
    ended = command(*words, env={"LEASELOCK_URL": ""})
    assert ended.returncode == 78, ended
    assert "LEASELOCK_URL" in ended.stderr
    assert "empty" in ended.stderr


def test_empty_url_option_is_an_error() -> None:
    ended = command("ls", "--url", "")
    assert ended.returncode == 78, ended
    assert "empty" in ended.stderr


@pytest.mark.parametrize("kind", [leaselock.Client, leaselock.AsyncClient])
def test_client_with_an_empty_url_of_the_environment(
    kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASELOCK_URL", "")
    with pytest.raises(ValueError, match="LEASELOCK_URL is set, but empty"):
        kind()


@pytest.mark.parametrize("words", [("-v", "run", "a", "--", "true"), ("doctor",)])
def test_store_is_named(file: str, words: tuple[str, ...]) -> None:
    ended = command(*words, url=file)
    assert file in ended.stderr + ended.stdout, ended


def test_relative_path_is_resolved_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    client = leaselock.Client("sqlite:///locks.db")
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    with client, client.lock("a"):
        assert client.url == f"sqlite:///{tmp_path}/locks.db"
    assert (tmp_path / "locks.db").exists()
    shown = command("doctor", url="sqlite:///locks.db", cwd=tmp_path)
    assert f"sqlite:///{tmp_path}/locks.db" in shown.stdout, shown


def test_command_under_a_lock_finds_the_same_file_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    inner = shlex.join([*COMMAND, "ls", "--json"])
    words = ("run", "a", "--", "sh", "-c", f"cd below && {inner}")
    ended = command(*words, url="sqlite:///locks.db", cwd=tmp_path)
    (lock,) = json.loads(ended.stdout)["locks"]
    assert lock["name"] == "a"
