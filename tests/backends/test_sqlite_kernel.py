"""The calls to the kernel that the embedded store relies on."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import leaselock
from leaselock._backends.sqlite import kernel

STORE = Path(leaselock.__file__).parent / "_backends" / "sqlite"
HOLDER = """
import os, sys
from leaselock._backends.sqlite import kernel
kernel.lock(os.open(sys.argv[1], os.O_RDWR))
fifo = os.open(sys.argv[2], os.O_RDWR)
print("held", flush=True)
sys.stdin.read()
"""


def test_death_ends_a_lock_and_hangs_up_a_fifo(tmp_path: Path) -> None:
    locked, watched, own = (str(tmp_path / name) for name in ("live", "other", "own"))
    Path(locked).touch()
    os.mkfifo(watched)
    fifo = kernel.make_fifo(own)
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, locked, watched],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    file, other = os.open(locked, os.O_RDONLY), os.open(watched, os.O_RDONLY | kernel.OPEN)
    assert kernel.is_locked(file)
    with pytest.raises(BlockingIOError):
        kernel.lock(file)
    assert kernel.wait(fifo, [other], 0.0) == []
    holder.kill()
    assert kernel.wait(fifo, [other], 60.0) == [other]
    holder.communicate()
    assert not kernel.is_locked(file)
    os.write(fifo, b"x")
    assert fifo in kernel.wait(fifo, [], 60.0)
    for descriptor in (file, other, fifo):
        os.close(descriptor)


def test_no_other_module_of_the_store_calls_the_kernel() -> None:
    for path in STORE.glob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        names = {a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
        assert path.name == "kernel.py" or not names & {"fcntl", "select"}, path
