"""The conformance suite on the protocol `document`, in memory and in files."""

from __future__ import annotations

import os
import sys
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.installed import install
from tests.conformance.share import EVERY, name, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
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
# The threads or tasks of a client hand a lease on.
LOCAL_HANDOFF = MEMORY._replace(name="document local handoff", local_handoffs=16, fair=False)


@pytest.fixture(scope="module", autouse=True)
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """For this process and those that it starts."""
    folder = tmp_path_factory.mktemp("site-packages")
    install(folder, "documents", "testkit.documents:MEMORY")
    install(folder, "documents-in", "testkit.documents:FOLDER")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(folder)])
        patch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(folder)]))
        yield


def parts(first: int, each: int) -> list[object]:
    """One of *each* is in the first tier, threads and asyncio in turn."""
    return [
        pytest.param(
            scenario,
            driver,
            marks=() if (n + first) % (2 * each) in (0, each) else pytest.mark.variant,
        )
        for n, (scenario, driver) in enumerate(EVERY)
    ]


@pytest.mark.parametrize(("scenario", "driver"), parts(0, 3), ids=name)
def test_memory(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, MEMORY, driver, tmp_path, max_waiters)


@pytest.mark.parametrize(("scenario", "driver"), parts(1, 7), ids=name)
def test_polled(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, POLLED, driver, tmp_path, max_waiters)


@pytest.mark.parametrize(("scenario", "driver"), parts(2, 7), ids=name)
def test_folder(scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path) -> None:
    run(scenario, FOLDER, driver, tmp_path, max_waiters)


@pytest.mark.parametrize(("scenario", "driver"), parts(3, 7), ids=name)
def test_local_handoff(
    scenario: Scenario, driver: str, max_waiters: int | None, tmp_path: Path
) -> None:
    run(scenario, LOCAL_HANDOFF, driver, tmp_path, max_waiters)
