"""The conformance suite on a server of your own: conftest.py has the options."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testkit.conformance import Scenario, Store, run_scenario

if TYPE_CHECKING:
    from pathlib import Path


def test_store(scenario: Scenario, driver: str, store: Store, tmp_path: Path) -> None:
    if reason := scenario.skip_reason(store, driver):
        pytest.skip(reason)
    run_scenario(scenario, store, driver, tmp_path)
