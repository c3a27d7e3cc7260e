"""The conformance suite on SQLite files."""

from pathlib import Path

import pytest
from tests.conformance.share import EVERY, name, run

from leaselock.testing.conformance import Scenario, Store

STORE = Store(
    "sqlite",
    lambda folder: f"sqlite:///{folder}/locks.db",
    protocols=("queue",),
    detects_death=True,
)


@pytest.mark.parametrize(("scenario", "driver"), EVERY, ids=name)
def test_sqlite(scenario: Scenario, driver: str, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path)
