"""A short storm on each of two stores; the long ones are for `make chaos`."""

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
from tests.storms.clock import COMPILERS, jumping
from tests.storms.stages import STAGES

from leaselock.testing.chaos.report import figures, markdown
from leaselock.testing.chaos.stage import Stage
from leaselock.testing.chaos.storm import play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["sqlite", "redlock-3"])
def test_a_short_storm(name: str, tmp_path: Path) -> None:
    told: list[str] = []
    with ExitStack() as stack:
        stage = jumping(STAGES[name](name, stack, tmp_path / "storm"), tmp_path)
        report = play(stage, 1, 3.0, tmp_path / "storm", told.append)
    assert report.ok, f"{report.verdict}\n{report.complaints}"
    assert len(told) == sum(report.faults().values()) > 0
    assert f"| {name} |" in markdown([report])
    assert figures(report)["broken"] == []


@pytest.mark.skipif(not any(map(shutil.which, COMPILERS)), reason="nothing can compile C here")
def test_a_clock_that_jumps_is_the_wall_clock_and_no_other(tmp_path: Path) -> None:
    stage = jumping(Stage("any", ""), tmp_path)
    stage.faults["jump clocks"](random.Random(1))
    asked = "import time; print(time.time(), time.monotonic())"
    off = set()
    for _ in range(8):
        command = [sys.executable, "-c", asked]
        done = subprocess.run(command, env={**os.environ, **stage.env}, capture_output=True)
        wall, monotonic = map(float, done.stdout.split())
        assert abs(monotonic - time.monotonic()) < 60.0
        off.add(round((wall - time.time()) / 100.0))
    assert len(off) > 1
