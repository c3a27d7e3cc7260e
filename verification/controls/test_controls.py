"""Each known defect is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from verification.controls.__main__ import markdown, run_controls
from verification.controls.controls import CONTROLS, Control
from verification.hazards.outcome import Verdict

if TYPE_CHECKING:
    from verification.hazards.table import Table

pytestmark = [
    pytest.mark.timeout(600),
    # A warning of tooz about the driver with the defect.
    pytest.mark.filterwarnings("ignore:PostgreSQL driver is deprecated"),
]


@pytest.fixture(scope="module")
def table() -> Table:
    """Return the outcomes, after writing their page."""
    table = run_controls()
    Path(os.environ["LEASELOCK_CONTROLS"]).write_text(markdown(table), "utf-8")
    return table


@pytest.mark.parametrize("control", CONTROLS.values(), ids=lambda control: control.key)
def test_known_defect_is_found(table: Table, control: Control) -> None:
    outcome = table.outcomes[control.cell]
    assert outcome.verdict is Verdict.FAILED, f"{control.defect}: {outcome}"
