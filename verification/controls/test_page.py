"""The page of the controls has a row for each, and each was found when it was written."""

from __future__ import annotations

from pathlib import Path

from verification.controls.controls import CONTROLS

PAGE = Path(__file__).parents[2] / "docs" / "internals" / "controls.md"


def test_page_lists_every_control_as_found() -> None:
    lines = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = {cells[0]: cells for line in lines if (cells := line.strip("| ").split(" | "))}
    assert list(CONTROLS) == [key for key in rows if key != "control"]
    for control in CONTROLS.values():
        assert rows[control.key][2:4] == [control.hazard.rows, control.defect]
        assert rows[control.key][4].startswith("failed: "), control.key


def test_minimum_numbers_of_hazards_and_methods() -> None:
    assert len(CONTROLS) >= 10
    assert len({control.package for control in CONTROLS.values()}) >= 5
