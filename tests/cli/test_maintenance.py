"""doctor, setup and gc on the embedded store."""

from __future__ import annotations

import json
import os
import re
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from testkit.servers.process import program
from testkit.servers.redis import Redis
from tests.cli.processes import LEASELOCK, Shell

import leaselock
from leaselock._backends.redis.scan import PAGE
from leaselock._cli import main

if TYPE_CHECKING:
    from pathlib import Path


def test_doctor_of_a_new_file_reports_ok(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", f"sqlite:///{tmp_path}/locks.db"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"ok    the store is sqlite:///{tmp_path}/locks.db"
    assert lines[1].startswith(f"ok    {tmp_path}/locks.db is on a local file system")
    assert {line.split()[0] for line in lines} == {"ok"}


def test_doctor_warns_of_a_file_readable_by_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "locks.db"
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client, client.lock("a"):
        path.chmod(0o644)
    assert main(["doctor", url]) == 0
    assert main(["doctor", "--strict", url]) == 1
    assert "warn  the file is open to others (mode 644)" in capsys.readouterr().out


def test_doctor_fails_for_an_unusable_store(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "locks.db"
    path.write_text("this is no database, and must stay as it is")
    path.chmod(0o600)
    assert main(["doctor", "--json", f"sqlite:///{path}"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [finding["level"] for finding in document["findings"]] == ["fail"]


def test_setup_and_its_alias_init_have_nothing_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    for command in ("setup", "init"):
        assert main([command, url]) == 0
        assert "needs no setup" in capsys.readouterr().err
        assert main([command, "--print", url]) == 0
        assert capsys.readouterr().out == ""


def test_gc_prints_the_number_of_removed_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["gc", "--json", f"sqlite:///{tmp_path}/locks.db"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 0


def test_doctor_fails_on_a_full_disk(shell: Shell) -> None:
    """A disk of less than a megabyte, in a mount namespace of its own."""
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    disk = f'mount -t tmpfs -o size=512k full "{shell.folder}" && exec "$@"'
    done = subprocess.run(
        [program("unshare"), "--mount", *user, "sh", "-c", disk, "sh", *LEASELOCK, "doctor"],
        env=shell.env,
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare" in done.stderr or "mount" in done.stderr:
        pytest.skip(f"no server: no mount namespaces here: {done.stderr}")
    assert done.returncode == 1, done.stderr
    assert re.search(r"^fail +\d+ KiB are free on its disk", done.stdout, re.M), done.stdout


def test_gc_does_not_examine_the_store_for_what_it_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """On each of several servers, and a page of keys after the other."""
    monkeypatch.delattr(leaselock.Client, "doctor")
    count = 3 * PAGE
    with ExitStack() as stack:
        servers = [stack.enter_context(Redis()) for _ in range(3)]
        url = ",".join(server.url for server in servers)
        for server in servers:
            fill = "for i = 1, ARGV[1] do redis.call('SET', KEYS[1] .. i .. '}', 7, 'PX', 1e8) end"
            server.ask("EVAL", fill, "1", "redisson_lock_token:{lock:n", str(count))
        said: list[str] = []
        with leaselock.Client(url) as client:
            client.gc(kept=said.append)
        assert [f"{count} token counters, the last until 2" in text for text in said] == [True] * 3
        assert len({text.partition(" ")[0] for text in said}) == 3


def test_gc_says_how_many_counters_redis_keeps_and_until_when(shell: Shell) -> None:
    with Redis() as server:
        shell.env["LEASELOCK_URL"] = server.url
        with leaselock.Client(server.url) as client:
            for name in ("a", "b"):
                with client.lock(name):
                    pass
        done = shell.run("gc")
        assert (done.returncode, done.stdout) == (0, "")
        _, kept = done.stderr.splitlines()
        assert re.search(r"kept: .*: 2 token counters, the last until \d{4}-\d\d-\d\d ", kept)
        assert len(shell.run("-q", "gc").stderr) == 0
