"""The conformance suite on the legacy formats, as far as each supports it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testkit.conformance import Scenario, Store
from testkit.servers.redis import Redis
from tests.conformance.matrix import configuration, name, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FORMS = ("setnx-expire", "getset", "setnx", "incr")


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


def store_on(server: Redis, form: str) -> Store:
    def fresh(folder: Path) -> str:
        server.ask("FLUSHALL")
        return f"{server.url}?protocol={form}"

    return Store(
        form,
        fresh,
        protocols=(form, "hash"),
        fair=False,
        has_queue=False,
        identifies_owner=form != "incr",
        leases_expire=form in ("setnx-expire", "getset"),
        # EXPIRE takes whole seconds.
        lease=1.0 if form == "setnx-expire" else 0.4,
    )


PARTS = [each for form in FORMS for each in configuration(form, form, one_in=4)]


@pytest.mark.filterwarnings("ignore::leaselock.UnsafeProtocolWarning")
@pytest.mark.parametrize(("form", "scenario", "driver"), PARTS, ids=name)
def test_forms(form: str, scenario: Scenario, driver: str, server: Redis, tmp_path: Path) -> None:
    store = store_on(server, form)
    run(scenario, store, driver, tmp_path)
