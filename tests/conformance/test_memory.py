"""The conformance suite on stores in memory."""

from itertools import count
from pathlib import Path

import pytest
from tests.conformance.share import EVERY, name, run, turns

from leaselock.testing.conformance import Scenario, Store

NUMBERS = count()
STORE = Store(
    "memory",
    lambda folder: f"memory://room{next(NUMBERS)}",
    protocols=("queue",),
    multiprocess=False,
    detects_death=True,
)
PASSING = STORE._replace(name="memory passing", local_handoffs=16, fair=False)


@pytest.mark.parametrize(("scenario", "driver"), EVERY, ids=name)
def test_memory(scenario: Scenario, driver: str, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path)


@pytest.mark.parametrize(("_", "scenario", "driver"), turns(("passing",)), ids=name)
def test_passing(_: str, scenario: Scenario, driver: str, tmp_path: Path) -> None:
    run(scenario, PASSING, driver, tmp_path)
