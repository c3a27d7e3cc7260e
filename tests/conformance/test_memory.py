"""The conformance suite on stores in memory."""

from itertools import count
from pathlib import Path

import pytest
from testkit.conformance import Scenario, Store
from tests.conformance.share import EVERY, MANY_WAITERS, name, run, turns

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
LOCAL_HANDOFF = STORE._replace(
    name="memory local handoff", local_handoffs=16, caches=True, fair=False
)


@pytest.mark.parametrize(("scenario", "driver"), EVERY, ids=name)
def test_memory(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path, max_waiters)


@pytest.mark.heavy
@pytest.mark.parametrize("store", [STORE, LOCAL_HANDOFF], ids=lambda store: store.name)
@pytest.mark.parametrize(("scenario", "driver"), MANY_WAITERS, ids=name)
def test_many_waiters(scenario: Scenario, driver: str, store: Store, tmp_path: Path) -> None:
    run(scenario, store, driver, tmp_path)


@pytest.mark.parametrize(("_", "scenario", "driver"), turns(("local_handoff",)), ids=name)
def test_local_handoff(
    _: str, scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path
) -> None:
    run(scenario, LOCAL_HANDOFF, driver, tmp_path, max_waiters)
