"""A short chaos run on each of two stores; `python -m verification.chaos` runs long ones on all."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from testkit.chaos.report import figures, markdown
from testkit.chaos.run import run
from testkit.chaos.target import Target
from verification.chaos.clock import COMPILERS, with_jumping_clocks
from verification.chaos.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "name", ["sqlite", "redis", "redlock-3", "sqlite-sharing", "postgres-lease-sharing"]
)
def test_short_chaos_run(name: str, tmp_path: Path) -> None:
    injected: list[str] = []
    with ExitStack() as stack:
        target = with_jumping_clocks(TARGETS[name](name, stack, tmp_path / "chaos"), tmp_path)
        report = run(target, 1, 3.0, tmp_path / "chaos", injected.append)
    assert report.ok, f"{report.verdict}\n{report.errors}"
    assert len(injected) == sum(report.fault_counts().values()) > 0
    assert f"| {name} |" in markdown([report])
    assert figures(report)["broken"] == []


@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="no C compiler found")
def test_only_the_wall_clock_jumps(tmp_path: Path) -> None:
    target = with_jumping_clocks(Target("any", ""), tmp_path)
    target.faults["jump clocks"](random.Random(1))
    asked = "import time; print(time.time(), time.monotonic())"
    off = set()
    for _ in range(8):
        command = [sys.executable, "-c", asked]
        done = subprocess.run(command, env={**os.environ, **target.env}, capture_output=True)
        wall, monotonic = map(float, done.stdout.split())
        assert abs(monotonic - time.monotonic()) < 60.0
        off.add(round((wall - time.time()) / 100.0))
    assert len(off) > 1
