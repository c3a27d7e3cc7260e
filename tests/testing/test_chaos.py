"""A fault campaign on a store for tests, and its timeline."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from testkit.chaos.__main__ import main

import leaselock

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.heavy


def test_chaos_prints_figures_and_draws_a_timeline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture = tmp_path / "chaos.svg"
    url = f"sqlite:///{tmp_path}/locks.db"
    assert main([url, "--seconds", "2", "--json", "--picture", str(picture)]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["broken"] == []
    assert figures["grants"] > 0
    assert sum(figures["faults"].values()) > 0
    assert "<svg" in picture.read_text()
    with leaselock.Client(url) as client:
        assert client.locks("chaos *") == []


def test_chaos_without_a_url_uses_a_temporary_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seconds", "1", "--seed", "7"]) == 0
    said = capsys.readouterr()
    assert "| sqlite |" in said.out
    assert "seed 7." in said.out
    assert "'chaos *'" in said.err


def test_chaos_refuses_memory(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["memory://"])
    assert "memory://" in capsys.readouterr().err
