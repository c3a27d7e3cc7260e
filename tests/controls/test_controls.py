"""Each known defect is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.controls.__main__ import markdown, played
from tests.controls.controls import CONTROLS, Control

from leaselock.testing.hazards.outcome import Verdict

if TYPE_CHECKING:
    from leaselock.testing.hazards.play import Table

pytestmark = [
    pytest.mark.timeout(600),
    # tooz's; it is the one that has the defect.
    pytest.mark.filterwarnings("ignore:PostgreSQL driver is deprecated"),
]


@pytest.fixture(scope="module")
def table() -> Table:
    """The outcomes, written to the page that was asked for."""
    table = played()
    Path(os.environ["LEASELOCK_CONTROLS"]).write_text(markdown(table), "utf-8")
    return table


@pytest.mark.parametrize("control", CONTROLS.values(), ids=lambda control: control.key)
def test_a_known_defect_is_found(table: Table, control: Control) -> None:
    outcome = table.outcomes[control.cell]
    assert outcome.verdict is Verdict.FAILED, f"{control.who}: {control.defect}: {outcome}"
