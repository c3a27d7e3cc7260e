"""A client is made and used while another thread imports a module for the first time."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# The module of that name waits in the middle of its import.
SLOW = "import __main__; __main__.begun.set(); assert __main__.done.wait(60)"
PROGRAM = """
import sys, threading
begun, done = threading.Event(), threading.Event()
threading.Thread(target=__import__, args=(sys.argv[1],)).start()
assert begun.wait(60)
try:
    import leaselock
    with leaselock.Client("memory://") as client:
        client.lock("a").acquire().release()
finally:
    done.set()
"""


@pytest.mark.parametrize("module", ["logging", "greenlet"])
def test_another_thread_imports_what_a_client_looks_for(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text(SLOW)
    (tmp_path / "program.py").write_text(PROGRAM)
    ran = subprocess.run(
        [sys.executable, "program.py", module],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
