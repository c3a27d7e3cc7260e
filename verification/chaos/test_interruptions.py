"""A short run of the interruptions; `make interruptions` runs a minute on each store."""

from __future__ import annotations

import signal
import time

import pytest
from testkit.conformance.harness import Interruption
from testkit.servers.process import eventually
from verification.chaos import interruptions
from verification.chaos.interruptions import Figures, main
from verification.chaos.timer import Delay, Timer, late


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
    quick, long = Interruption("acquire 1 before 1", 1.0, 0.001), Interruption("body 2", 2.0, 0.7)
    figures = Figures("memory", "asyncio", [quick, long], [Delay(2.1, 0.15)])
    assert figures.slow() == figures.long() == [long]
    assert "| 2 | 2 | 350.5 ms | 700.0 ms | 150.0 ms | 1 | 1 |" in str(figures)


def test_the_delays_of_a_timer_in_the_same_interval_do_not_count() -> None:
    long = Interruption("body 2 after 2", 2.0, 0.7)
    # Of the first one 0.1 s are in the interval, of the second one all, of the third one nothing.
    delays = [Delay(2.1, 0.2), Delay(2.4, 0.15), Delay(9.0, 1.0)]
    figures = Figures("memory", "asyncio", [long], delays)
    assert figures.late(long) == pytest.approx(0.25)
    assert figures.long() == [long]
    assert figures.slow() == []


def test_a_process_without_processor_time_is_late() -> None:
    with Timer() as timer:
        eventually(lambda: bool(timer.measured()))  # it runs
        began = time.monotonic()
        timer.process.send_signal(signal.SIGSTOP)
        eventually(lambda: time.monotonic() > began + 0.2)
        timer.process.send_signal(signal.SIGCONT)
        eventually(lambda: timer.measured()[-1].ended > began + 0.2)
    assert late(timer.delays, began, began + 0.2) > 0.1
