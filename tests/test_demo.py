"""The demo reports that every guarantee was kept, and would report a violation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from examples.demo import Display, Outcome, guarantees, report

from leaselock.testing.checker import check
from leaselock.testing.history import History
from leaselock.testing.record_format import Event, Record
from leaselock.testing.verdict import Kind, Verdict, Violation

pytestmark = pytest.mark.heavy

ROOT = Path(__file__).resolve().parent.parent
LATE = {"loss": "its time ran out", "rejected": True}


def test_demo_keeps_every_guarantee_and_leaves_no_files(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, ROOT / "examples" / "demo.py"],
        env=os.environ | {"TMPDIR": str(tmp_path), "HOME": str(tmp_path), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.rstrip().endswith("Every guarantee was kept.")
    for event in ("(SIGKILL)", "(SIGSTOP)", "its lease was lost: ", "late update was rejected"):
        assert event in run.stdout
    assert "\033" not in run.stdout
    assert not list(tmp_path.iterdir())


def verdict(*kinds: Kind) -> Verdict:
    """Return the verdict on a history with one grant and one accepted write."""
    events = [(Event.ACQUIRING, 0), (Event.GRANTED, 0), (Event.WRITE_DONE, 1), (Event.RELEASING, 0)]
    records = [Record(n, event, 1, 1, 7, token=5, aux=a) for n, (event, a) in enumerate(events)]
    counts = check(History.of(records)).counts
    return Verdict(counts, tuple(Violation(kind, "ledger", "planted") for kind in kinds))


def outcome(*kinds: Kind, **changes: Any) -> Outcome:
    return Outcome(verdict(*kinds), 1, 0.01, LATE)._replace(**changes)


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind is not Kind.REFUSAL])
def test_each_kind_of_violation_breaks_a_guarantee(
    kind: Kind, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not report(Display(), 10, 3, outcome(kind))
    assert capsys.readouterr().out.count("BROKEN") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"number": 2},
        {"free_after": 20.0},
        {"late": LATE | {"loss": ""}},
        {"late": LATE | {"rejected": False}},
    ],
    ids=["lost update", "lock not free", "loss not reported", "not fenced"],
)
def test_violation_outside_the_history_breaks_a_guarantee(changes: dict[str, Any]) -> None:
    broken = [guarantee for guarantee, kept in guarantees(outcome(**changes)) if not kept]
    assert len(broken) == 1
