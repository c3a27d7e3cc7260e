"""The conformance suite on SQLite files."""

from pathlib import Path

import pytest
from tests.conformance.share import EVERY, name

from leaselock.testing.conformance import Scenario, Store, play

STORE = Store(
    "sqlite",
    lambda folder: f"sqlite:///{folder}/locks.db",
    protocols=("queue",),
    life=True,
)


@pytest.mark.parametrize(("scenario", "driver"), EVERY, ids=name)
def test_sqlite(scenario: Scenario, driver: str, tmp_path: Path) -> None:
    if reason := scenario.unfit(STORE, driver):
        pytest.skip(reason)
    play(scenario, STORE, driver, tmp_path)
