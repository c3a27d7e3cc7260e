"""The campaign of tasks with a synchronous client works, and finds what it looks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.chaos import tasks

from leaselock._drivers.owners import OWNERS

if TYPE_CHECKING:
    import pytest


def test_no_deposit_is_lost(capsys: pytest.CaptureFixture[str]) -> None:
    assert tasks.main(["--seconds", "0.3", "--tasks", "20", "memory"]) == 0
    assert "| memory | 20 |" in capsys.readouterr().out


def test_one_owner_for_all_tasks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = OWNERS.running()
    monkeypatch.setattr("leaselock._drivers.threads.Threads.owner", lambda self: owner)
    assert tasks.main(["--seconds", "0.3", "--tasks", "20", "memory"]) == 1
