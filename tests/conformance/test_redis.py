"""The conformance suite on Redis: one server, the default protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.servers.redis import Redis

from holdfast.testing.conformance import DRIVERS, SCENARIOS, Scenario, Store, play

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CLAIM_TIME = 3.0


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def store_on(server: Redis) -> Store:
    """The store whose server is emptied for each scenario."""

    def fresh(folder: Path) -> str:
        server.ask("FLUSHALL")
        return server.url

    return Store("redis", fresh, protocols=("hash",), claim_time=CLAIM_TIME)


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("scenario", SCENARIOS, ids=repr)
def test_redis(scenario: Scenario, driver: str, redis: Redis, tmp_path: Path) -> None:
    store = store_on(redis)
    if reason := scenario.unfit(store, driver):
        pytest.skip(reason)
    play(scenario, store, driver, tmp_path)
