"""The conformance suite on an ensemble of three servers."""

from pathlib import Path

import pytest
from tests.servers.ensembles import fresh
from tests.servers.zookeeper import TICK_MS, Ensemble

from holdfast.testing.conformance import DRIVERS, SCENARIOS, Scenario, Store, play

SESSION = 3.0
# The ensemble ends a session at a tick.
SILENCE = SESSION + 2 * TICK_MS / 1000


def _store(ensemble: Ensemble) -> Store:
    return Store(
        "zookeeper",
        lambda folder: fresh(ensemble, timeout=SESSION),
        protocols=("queue", "single"),
        detach=False,
        claim_time=SILENCE,
        session=SESSION,
    )


@pytest.mark.filterwarnings("ignore::holdfast.UnsafeProtocolWarning")
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=repr)
def test_zookeeper(scenario: Scenario, driver: str, ensemble: Ensemble, tmp_path: Path) -> None:
    store = _store(ensemble)
    if reason := scenario.unfit(store, driver):
        pytest.skip(reason)
    play(scenario, store, driver, tmp_path)
