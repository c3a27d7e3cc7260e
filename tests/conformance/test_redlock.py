"""The conformance suite on Redlock, of three and of five masters."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.redis import Redis
from tests.conformance.matrix import configuration, name, protocol, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CONFIRM_WITHIN = 3.0


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Redis]]:
    with ExitStack() as stack:
        yield [stack.enter_context(Redis()) for _ in range(5)]


def store_on(servers: Sequence[Redis]) -> Store:
    def fresh(folder: Path) -> str:
        for server in servers:
            server.ask("FLUSHALL")
        return ",".join(server.url for server in servers)

    return Store(
        f"redlock of {len(servers)}",
        fresh,
        protocols=("redlock",),
        notifies_holder=False,
        confirm_within=CONFIRM_WITHIN,
    )


PARTS = [*protocol("redlock", "3"), *configuration("five masters", "5", one_in=8)]


@pytest.mark.parametrize(("masters", "scenario", "driver"), PARTS, ids=name)
def test_redlock(
    masters: str, scenario: Scenario, driver: str, servers: list[Redis], tmp_path: Path
) -> None:
    store = store_on(servers[: int(masters)])
    run(scenario, store, driver, tmp_path)
