"""A short run of the interruptions; `make interruptions` runs a minute on each store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.storms import interruptions
from verification.storms.interruptions import Figures, main

if TYPE_CHECKING:
    import pytest


def test_every_operation_is_interrupted_in_tasks_and_in_threads(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # How long it takes on a busy machine is not the subject.
    monkeypatch.setattr(interruptions, "BOUND", 60.0)
    assert main(["--seconds", "0.1", "memory"]) == 0
    *_, threads, tasks = capsys.readouterr().out.splitlines()
    assert threads.startswith("| memory | threads | 25 |")
    assert tasks.startswith("| memory | asyncio | 25 |")


def test_a_lock_that_is_held_for_too_long_is_reported() -> None:
    figures = Figures("memory", "asyncio", [("acquire 1 before 1", 0.001), ("body 2 after 2", 0.7)])
    assert figures.slow() == [("body 2 after 2", 0.7)]
    assert "| 2 | 2 | 350.5 ms | 700.0 ms | 1 |" in str(figures)
