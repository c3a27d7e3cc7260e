"""Traces are the same in two runs, and differ when the code does."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from verification.simulation.planted.sqlite import token_repeated
from verification.simulation.traces import differences, digest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.first_tier
# Of each scenario; a wrong order of names shows in one of them.
SEEDS = 17


def test_the_same_code_takes_the_same_steps() -> None:
    before, after = ([digest("sqlite", seed) for seed in range(3)] for _ in range(2))
    assert differences(before, after) == []


def test_another_behaviour_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [digest("sqlite", seed) for seed in range(3)]
    token_repeated(monkeypatch)
    after = [digest("sqlite", seed) for seed in range(3)]
    assert differences(before, after) == after


def test_a_seed_that_is_missing_before_differs() -> None:
    one, two = digest("sqlite", 1), digest("sqlite", 2)
    assert differences([one], [one, two]) == [two]


@pytest.mark.heavy
@pytest.mark.long
def test_the_order_of_sets_changes_no_step(tmp_path: Path) -> None:
    """A seed that has found an error finds it again, in another process, too."""
    for hashes in ("1", "2"):
        command = ["-m", "verification.simulation.traces", "--seeds", str(SEEDS), "--write"]
        surroundings = {**os.environ, "PYTHONHASHSEED": hashes}
        subprocess.run(
            [sys.executable, *command, str(tmp_path / hashes)], env=surroundings, check=True
        )
    one, two = ((tmp_path / hashes).read_text("utf-8").splitlines() for hashes in ("1", "2"))
    assert differences(one, two) == []
