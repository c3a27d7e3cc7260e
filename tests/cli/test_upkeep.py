"""doctor, init and gc on the embedded store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

from leaselock.cli import main


def test_doctor_finds_a_fresh_file_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", f"sqlite:///{tmp_path}/locks.db"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"ok    {tmp_path}/locks.db is on a local file system")
    assert {line.split()[0] for line in lines} == {"ok"}


def test_doctor_warns_of_a_file_that_is_open_to_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "locks.db"
    url = f"sqlite:///{path}"
    with leaselock.Client(url) as client, client.lock("a"):
        path.chmod(0o644)
    assert main(["doctor", url]) == 0
    assert main(["doctor", "--strict", url]) == 1
    assert "warn  the file is open to others (mode 644)" in capsys.readouterr().out


def test_doctor_fails_for_a_store_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "locks.db"
    path.write_text("this is no database, and must stay as it is")
    path.chmod(0o600)
    assert main(["doctor", "--json", f"sqlite:///{path}"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [finding["level"] for finding in document["findings"]] == ["fail"]


def test_init_has_nothing_to_make(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/locks.db"
    assert main(["init", url]) == 0
    assert "needs nothing made" in capsys.readouterr().err
    assert main(["init", "--print", url]) == 0
    assert capsys.readouterr().out == ""


def test_gc_says_how_much_it_removed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gc", "--json", f"sqlite:///{tmp_path}/locks.db"]) == 0
    assert json.loads(capsys.readouterr().out)["removed"] == 0
