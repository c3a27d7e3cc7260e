"""The conformance suite: the contract of every store, for threads and for asyncio, written once.

@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=repr)
def test_conformance(scenario, driver, tmp_path):
    if reason := scenario.skip_reason(STORE, driver):
        pytest.skip(reason)
    run_scenario(scenario, STORE, driver, tmp_path)
"""

from __future__ import annotations

from testkit.conformance.runner import run_scenario
from testkit.conformance.scenario import DRIVERS, SCENARIOS, Scenario
from testkit.conformance.store import Store

__all__ = ["DRIVERS", "SCENARIOS", "Scenario", "Store", "run_scenario"]
