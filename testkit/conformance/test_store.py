"""The conformance suite on a server of your own: conftest.py has the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testkit.conformance import Scenario, Store, run_scenario

if TYPE_CHECKING:
    from pathlib import Path


def test_store(scenario: Scenario, driver: str, emptied: Store, tmp_path: Path) -> None:
    if reason := scenario.skip_reason(emptied, driver):
        pytest.skip(reason)
    run_scenario(scenario, emptied, driver, tmp_path)
