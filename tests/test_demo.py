"""The demo shows what it says, and would say if a promise were broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.demo import Outcome, Screen, promises, report, rules

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import Event, Record
from leaselock.testing.verdict import Kind, Verdict, Violation

ROOT = Path(__file__).resolve().parent.parent
LATE = {"loss": "its time ran out", "refused": True}


def test_the_demo_keeps_every_promise_and_leaves_nothing(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        env=os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=40,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.rstrip().endswith("Every promise was kept.")
    for event in ("(SIGKILL)", "(SIGSTOP)", "its lease lost: ", "late update was refused"):
        assert event in run.stdout
    assert "\033" not in run.stdout
    assert not list(tmp_path.iterdir())


def verdict(*kinds: Kind) -> Verdict:
    """Of a history with one grant and one accepted write."""
    events = [(Event.ACQUIRING, 0), (Event.GRANTED, 0), (Event.WRITE_DONE, 1), (Event.RELEASING, 0)]
    records = [Record(n, event, 1, 1, 7, token=5, aux=a) for n, (event, a) in enumerate(events)]
    counts = check(History.of(records)).counts
    return Verdict(counts, tuple(Violation(kind, "ledger", "planted") for kind in kinds))


def outcome(*kinds: Kind, **changes: Any) -> Outcome:
    return Outcome(verdict(*kinds), 1, 0.01, LATE)._replace(**changes)


def test_a_sound_run_keeps_every_promise(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(Screen(), 10, 3, outcome())
    assert "BROKEN" not in capsys.readouterr().out


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.REFUSAL])
def test_each_kind_of_violation_breaks_a_promise(
    kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not report(Screen(), 10, 3, outcome(kind))
    assert capsys.readouterr().out.count("BROKEN") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"free_after": 3.0},
        {"late": LATE | {"loss": ""}},
        {"late": LATE | {"refused": False}},
    ],
    ids=["lost update", "ghost", "not told", "not fenced"],
)
def test_what_the_history_does_not_show_breaks_a_promise_too(changes: dict[str, Any]) -> None:
    broken = [promise for promise, kept in promises(outcome(**changes)) if not kept]
    assert len(broken) == 1


def test_a_demo_in_which_nothing_happened_proves_nothing() -> None:
    found = check(History.of([]), rules())
    assert Kind.VACUOUS in found.kinds()
