"""A short storm on each of two stores; the long ones are for `make chaos`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.storms.__main__ import figures, markdown
from tests.storms.storm import play

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("name", ["sqlite", "redlock-3"])
def test_a_short_storm(name: str, tmp_path: Path) -> None:
    told: list[str] = []
    report = play(name, 1, 3.0, tmp_path / "storm", told.append)
    assert report.ok, f"{report.verdict}\n{report.complaints}"
    assert len(told) == sum(report.faults.values()) > 0
    assert f"| {name} |" in markdown([report])
    assert figures(report)["violations"] == []
