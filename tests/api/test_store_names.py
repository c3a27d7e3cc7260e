"""Which store is used, and how it is shown."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import Process, eventually
from tests.people import COMMAND, command, script

import leaselock

if TYPE_CHECKING:
    from testkit.servers.redis import Redis

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as two users")


def test_busy_messages_name_the_store(file: str) -> None:
    with leaselock.Client(file) as client, client.lock("a"):
        for words in (("run", "-n", "a", "--", "true"), ("acquire", "-n", "a")):
            ended = command(*words, url=file)
            assert ended.returncode == 75
            assert file in ended.stderr, ended
        other = leaselock.Client(file)
        with pytest.raises(leaselock.AcquireTimeout) as told, other.lock("a", timeout=0):
            pass
        other.close()
        assert file in str(told.value)


def test_lost_message_names_the_store(file: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    words = ["run", "--ttl", "2s", "a", "--", "sleep", "60"]
    os.environ.pop("LEASELOCK_URL", None)
    holder = Process(["env", f"LEASELOCK_URL={file}", *COMMAND, *words], log)
    try:
        with leaselock.Client(file) as client:
            eventually(client.lock("a").locked)
            client.break_lock("a")
        eventually(lambda: not holder.alive)
    finally:
        holder.kill()
    assert file in holder.output(), holder.output()


def test_doctor_tells_of_the_default_file_of_each_user(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "XDG_STATE_HOME": None}
    ended = command("doctor", env=env)
    assert "LEASELOCK_URL" in ended.stdout, ended
    assert "other users" in ended.stdout
    named = command("doctor", url=f"sqlite:///{tmp_path}/.local/state/leaselock/locks.db", env=env)
    assert "other users" not in named.stdout


# All that the command needs is loaded first: the other user may not be able to read this source.
AS_STRANGER = """
import datetime, importlib, json, os, pkgutil, pwd, re, subprocess, sys, traceback, unicodedata
import leaselock._backends.sqlite, leaselock._cli, leaselock._core, leaselock._drivers

for package in (leaselock._backends.sqlite, leaselock._cli, leaselock._core, leaselock._drivers):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if not module.name.endswith(("_windows", "_macos")):
            importlib.import_module(module.name)
import leaselock._api.threads
os.chdir("/")
os.setgroups([])
os.setgid(54001)
os.setuid(54001)
sys.exit(leaselock._cli.main(sys.argv[1:]))
"""


@root_only
@pytest.mark.parametrize("name", ["closed/locks.db", "closed/below/locks.db"])
def test_directory_that_may_not_be_entered_is_no_permission(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        closed = Path(folder) / "closed"
        (closed / "below").mkdir(parents=True)
        closed.chmod(0o700)
        ended = script(AS_STRANGER, "ls", url=f"sqlite:///{folder}/{name}")
    assert ended.returncode == 77, ended
    assert "permission" in ended.stderr.lower()
    assert "there is no directory" not in ended.stderr


def test_missing_directory_is_reported_as_missing(tmp_path: Path) -> None:
    ended = command("ls", url=f"sqlite:///{tmp_path}/none/locks.db")
    assert ended.returncode == 78, ended
    assert "there is no directory" in ended.stderr


@root_only
def test_user_without_a_home_is_told_that_no_url_was_given() -> None:
    ended = script(AS_STRANGER, "ls", env={"HOME": None, "XDG_STATE_HOME": None})
    assert ended.returncode == 78, ended
    assert "no URL was given" in ended.stderr
    assert "default file" in ended.stderr
    assert "LEASELOCK_URL" in ended.stderr


URLS = [
    ("redis:/host", "redis://host"),
    ("redis:host:6379", "redis://host:6379"),
    ("redis//host", "redis://host"),
    ("postgresql:/host/db", "postgresql://host/db"),
    ("zookeeper:/host", "zookeeper://host"),
    ("sqlite:/locks.db", "sqlite:///"),
    ("sqlite://locks.db", "sqlite:///locks.db"),
    ("localhost:6379", "redis://localhost:6379"),
    ("redis://host/0 ", "blank"),
    ("sqlite:///locks.db ", "blank"),
    (" redis://host/0", "blank"),
    ("redis://host/0\n", "blank"),
    ("redis://host/0?protocoll=string", "protocol"),
    ("postgresql://host/db?protocols=row", "protocol"),
    ("zookeeper://host/?sessions=5", "timeout"),
    ("sqlite:///locks.db?wal=1", "protocol"),
    ("redis+sentinel://host", "redis+sentinel://"),
]


@pytest.mark.parametrize(("url", "words"), URLS)
def test_wrong_url_is_answered_with_what_to_write(url: str, words: str) -> None:
    with pytest.raises(ValueError) as told:  # noqa: PT011
        leaselock.Client(url)
    said = str(told.value)
    assert words in said
    assert len(said.splitlines()) == 1
    ended = command("ls", "--url", url)
    assert ended.returncode == 78
    assert said in ended.stderr


def test_missing_password_says_what_to_write(redis: Redis) -> None:
    redis.ask("CONFIG", "SET", "requirepass", "hunter2")
    ended = command("ls", url=redis.url)
    assert ended.returncode == 77, ended
    assert "redis://:PASSWORD@" in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
