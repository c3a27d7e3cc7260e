"""The conformance suite on stores in memory."""

from itertools import count
from pathlib import Path

import pytest
from testkit.conformance import Scenario, Store
from tests.conformance.matrix import MANY_WAITERS, name, protocol, run

pytestmark = pytest.mark.covers

NUMBERS = count()
STORE = Store(
    "memory",
    lambda folder: f"memory://room{next(NUMBERS)}",
    protocols=("queue",),
    multiprocess=False,
    detects_death=True,
    sharing=True,
    updates=True,
    permits=True,
    min_hold=True,
    lease=0.2,
)


@pytest.mark.parametrize(("scenario", "driver"), protocol("memory", one_in=1, both=True), ids=name)
def test_memory(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path, max_waiters)


@pytest.mark.heavy
@pytest.mark.parametrize(("scenario", "driver"), MANY_WAITERS, ids=name)
def test_many_waiters(scenario: Scenario, driver: str, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path)
