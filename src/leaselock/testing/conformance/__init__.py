"""The conformance suite: the contract of every store, for threads and for asyncio, written once.

@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=repr)
def test_conformance(scenario, driver, tmp_path):
    if reason := scenario.skip_reason(STORE, driver):
        pytest.skip(reason)
    run_scenario(scenario, STORE, driver, tmp_path)
"""

from __future__ import annotations

from leaselock.testing.conformance.runner import run_scenario
from leaselock.testing.conformance.scenario import DRIVERS, SCENARIOS, Scenario
from leaselock.testing.conformance.store import Store

__all__ = ["DRIVERS", "SCENARIOS", "Scenario", "Store", "run_scenario"]
