"""A part of the tests in a CPython for Windows, under Wine: in the third tier until its
time on an idle machine is known.

The nightly workflow runs all of them, on each version.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.nightly

SCRIPT = Path(__file__).parents[2] / "scripts" / "wine"
VERSION = "3.13"
# The exit code of the script where Wine, the interpreter or a package cannot be had.
UNAVAILABLE = 69
LIMIT = 3600.0
PARTS = {
    "memory": ("tests/conformance/test_memory.py", "--tier", "test", "-k", "exclusion or tokens"),
    "sqlite": (
        *("tests/conformance/test_sqlite.py", "--tier", "test"),
        *("-k", "exclusion.two or killed or frozen or inherit or wake"),
    ),
    "command": (
        "verification/windows/test_command.py",
        *("-k", "code_of_the_command and 7 or batch"),
    ),
}


@pytest.mark.long
@pytest.mark.skipif(shutil.which("wine") is None, reason="Wine is not installed: make servers")
def test_windows() -> None:
    for part, words in PARTS.items():
        ran = subprocess.run(
            [str(SCRIPT), VERSION, "-q", *words],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
        )
        if ran.returncode == UNAVAILABLE:
            pytest.skip(ran.stderr.strip())
        assert ran.returncode == 0, f"{part}: {ran.stdout}{ran.stderr}"
