"""A short storm on each of two stores; the long ones are for `make chaos`."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from tests.storms.stages import STAGES

from holdfast.testing.chaos.report import figures, markdown
from holdfast.testing.chaos.storm import play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["sqlite", "redlock-3"])
def test_a_short_storm(name: str, tmp_path: Path) -> None:
    told: list[str] = []
    with ExitStack() as stack:
        stage = STAGES[name](name, stack, tmp_path / "storm")
        report = play(stage, 1, 3.0, tmp_path / "storm", told.append)
    assert report.ok, f"{report.verdict}\n{report.complaints}"
    assert len(told) == sum(report.faults().values()) > 0
    assert f"| {name} |" in markdown([report])
    assert figures(report)["broken"] == []
