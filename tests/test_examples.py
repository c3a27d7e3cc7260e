"""The examples run as they are printed, are short, and say what their readers are told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LONGEST = 40
SAID = {
    "threads.py": ["five deposits: 50", "mine for the next 30 seconds"],
    "asyncio_.py": ["ann, ben, cleo", "another task in the meantime: None"],
    "fencing.py": ["new holder's write: True", "late holder's write: False", "report is new"],
    "decorator.py": ["not written twice: 'report' could not be had", "written by the first"],
}


def test_every_example_is_tested() -> None:
    found = {path.name for path in EXAMPLES.glob("*.py") if not path.name.startswith("demo")}
    assert found == set(SAID)


@pytest.mark.parametrize("name", SAID)
def test_an_example_runs_and_is_short(name: str, tmp_path: Path) -> None:
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    environment.pop("LEASELOCK_URL", None)
    run = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (run.returncode, run.stderr) == (0, "")
    for line in SAID[name]:
        assert line in run.stdout
    assert (EXAMPLES / name).read_text("utf-8").count("\n") < LONGEST
