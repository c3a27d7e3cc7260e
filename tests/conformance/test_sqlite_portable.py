"""The conformance suite on SQLite files, with the locks and messages that macOS uses."""

from pathlib import Path

import pytest
from testkit.conformance import Scenario
from tests.conformance.matrix import configuration, name, run
from tests.conformance.test_sqlite import STORE

from leaselock._backends.sqlite import kernel, kernel_portable


@pytest.fixture(autouse=True)
def portable_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process and those that it starts use the portable module."""
    monkeypatch.setenv(kernel.PORTABLE, "1")
    for offered in kernel_portable.__all__:
        monkeypatch.setattr(kernel, offered, getattr(kernel_portable, offered))


@pytest.mark.parametrize(
    ("scenario", "driver"), configuration("sqlite portable", one_in=3), ids=name
)
def test_sqlite(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, STORE, driver, tmp_path, max_waiters)
