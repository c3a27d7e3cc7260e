"""The conformance suite in asyncio, on uvloop instead of the loop of the standard library."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
import uvloop
from tests.conformance.matrix import configuration, name, run
from tests.conformance.test_memory import STORE as MEMORY
from tests.conformance.test_redis import single  # noqa: F401
from tests.conformance.test_sqlite import STORE as SQLITE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testkit.conformance import Scenario, Store

# Some scenarios end a loop before its client. uvloop warns of the connection while it closes the
# loop, and does not go on if that is an error.
OPEN = pytest.mark.filterwarnings("ignore:unclosed resource <TCPTransport:ResourceWarning")
PARTS = [
    each
    for store in ("memory", "sqlite", "single")
    for each in configuration(f"uvloop {store}", store, one_in=12, only=["asyncio"])
]


@pytest.fixture
def on_uvloop() -> Iterator[None]:
    """Each `asyncio.run` of a scenario, also in the threads that it starts, uses uvloop."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    yield
    asyncio.set_event_loop_policy(before)


@pytest.mark.variant
@pytest.mark.usefixtures("on_uvloop")
def test_the_loop_is_one_of_uvloop() -> None:
    async def module() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert asyncio.run(module()) == "uvloop"


@pytest.mark.usefixtures("on_uvloop")
@OPEN
@pytest.mark.parametrize(("store", "scenario", "driver"), PARTS, ids=name)
def test_uvloop(
    store: str, scenario: Scenario, driver: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    known = {"memory": MEMORY, "sqlite": SQLITE}
    on: Store = known.get(store) or request.getfixturevalue(store)
    run(scenario, on, driver, tmp_path)
