"""The conformance suite: what every store must do, in threads and in asyncio, written once.

@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=repr)
def test_conformance(scenario, driver, tmp_path):
    if reason := scenario.unfit(STORE, driver):
        pytest.skip(reason)
    play(scenario, STORE, driver, tmp_path)
"""

from __future__ import annotations

from leaselock.testing.conformance.play import play
from leaselock.testing.conformance.scenario import DRIVERS, SCENARIOS, Scenario
from leaselock.testing.conformance.store import Store

__all__ = ["DRIVERS", "SCENARIOS", "Scenario", "Store", "play"]
