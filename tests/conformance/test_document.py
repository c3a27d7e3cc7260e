"""The conformance suite on the protocol `document`, in memory and in files."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.installed import documents
from tests.conformance.matrix import configuration, name, protocol, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.covers

NUMBERS = count()
MEMORY = Store(
    "document",
    lambda folder: f"documents://room{next(NUMBERS)}",
    protocols=("document",),
    multiprocess=False,
    sharing=True,
    updates=True,
    permits=True,
    min_hold=True,
    lease=0.2,
)
# Waiters poll, and conflicts do not say what there is.
POLLED = MEMORY._replace(
    name="document polled",
    fresh=lambda folder: f"documents://room{next(NUMBERS)}?watch=no&current=no&clock=no",
    notifies=False,
    notifies_holder=False,
    max_waiters=20,
)
FOLDER = MEMORY._replace(
    name="document folder",
    fresh=lambda folder: f"documents-in://{folder}/documents",
    multiprocess=True,
    notifies=False,
    notifies_holder=False,
    max_waiters=20,
)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For this process and those that it starts."""
    with documents(tmp_path_factory.mktemp("site-packages")):
        yield


MEMORY_PARTS = protocol("document", one_in=2)
POLLED_PARTS = configuration("document polled", one_in=8)
FOLDER_PARTS = configuration("document folder", one_in=8)


@pytest.mark.parametrize(("scenario", "driver"), MEMORY_PARTS, ids=name)
def test_memory(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, MEMORY, driver, tmp_path, max_waiters)


@pytest.mark.parametrize(("scenario", "driver"), POLLED_PARTS, ids=name)
def test_polled(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, POLLED, driver, tmp_path, max_waiters)


@pytest.mark.parametrize(("scenario", "driver"), FOLDER_PARTS, ids=name)
def test_folder(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, FOLDER, driver, tmp_path, max_waiters)
