"""The examples, and the program in the README, run unchanged and print what is expected."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"


def programs(page: Path) -> list[str]:
    """Return the Python code blocks of a page."""
    return re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.M | re.S)


PRINTED = ["charging, token", "writing the report of today"]
MAX_LINES = 40
# Tested by tests of their own.
ELSEWHERE = {"demo.py", "demo_worker.py", "fastapi_scheduler.py", "folder_store.py"}
EXPECTED = {
    "threads.py": ["five deposits: 50", "held: valid for 30 seconds"],
    "asyncio_.py": ["ann, ben, cleo", "another task, after 0.1 s: None"],
    "fencing.py": ["new holder's write: True", "late holder's write: False", "report is new"],
    "decorator.py": ["not written twice: could not acquire 'report'", "written by the first"],
}


def run(arguments: list[str | Path], tmp_path: Path, url: str | None = None) -> str:
    """Run Python with these arguments; return what it printed. It must not write errors."""
    environment = os.environ | {"XDG_STATE_HOME": str(tmp_path)}
    environment.pop("LEASELOCK_URL", None)
    if url is not None:
        environment["LEASELOCK_URL"] = url
    process = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    return process.stdout


def test_every_example_is_tested() -> None:
    found = {path.name for path in EXAMPLES.glob("*.py")}
    assert found == set(EXPECTED) | ELSEWHERE


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_runs_and_is_short(name: str, tmp_path: Path) -> None:
    printed = run([EXAMPLES / name], tmp_path)
    for line in EXPECTED[name]:
        assert line in printed
    assert (EXAMPLES / name).read_text("utf-8").count("\n") < MAX_LINES


@pytest.mark.parametrize("url", [None, "memory://"], ids=["embedded", "memory"])
def test_readme_program_runs(url: str | None, tmp_path: Path) -> None:
    (program,) = programs(ROOT / "README.md")
    printed = run(["-c", program], tmp_path, url)
    for line in PRINTED:
        assert line in printed
