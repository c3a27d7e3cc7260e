"""The matrix of the conformance suite: which scenario runs where, with which driver, in which tier.

A *protocol* is a text that decides who holds a lock: in the first two tiers each scenario runs on
it with both drivers. A *configuration* is another way to reach a protocol: a topology, another
server with the same interface, another event loop. A fixed share of the scenarios runs on it, with
one driver. What is left of the matrix is in the third tier, `make release-checks`.

Which scenarios are in a share is a function of their names: it stays when others are added, and
shares of several configurations do not coincide.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import pytest
from testkit.conformance import DRIVERS, SCENARIOS, Scenario, Store, run_scenario
from tests import tiers
from tests.pace import pace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

# The servers of the first tier: each scenario runs on one of them, with one driver.
SERVERS = ("redis", "postgres", "zookeeper")
# One in NEVER is none.
NEVER = 0
SECOND = pytest.mark.variant
THIRD = pytest.mark.nightly


def drivers(scenario: Scenario) -> Sequence[str]:
    """Return the drivers that a scenario is about."""
    return [driver for driver in DRIVERS if driver in scenario.needs] or DRIVERS


# Those about many waiters.
MANY_WAITERS = [
    (each, driver)
    for each in SCENARIOS
    if ".many_waiters_" in each.name
    for driver in drivers(each)
]


def drawn(scenario: Scenario, what: str, among: int) -> int:
    """Return a number below *among*, which depends on nothing but these two names."""
    return zlib.crc32(f"{what}: {scenario.name}".encode()) % among


def driver_of(scenario: Scenario, what: str) -> str:
    """Return the one driver that a scenario has in a share."""
    own = drivers(scenario)
    return own[drawn(scenario, f"driver of {what}", len(own))]


def protocol(name: str, *first: object, one_in: int = NEVER, both: bool = False) -> list[Any]:
    """Return parameters (*first*, scenario, driver) of a protocol: each scenario, both drivers.

    One in *one_in* is in the first tier, with one driver, or with *both*. A protocol that is one
    of SERVERS has the scenarios there that the other two do not have.
    """
    return list(_protocol(name, first, one_in, both))


def _protocol(name: str, first: tuple[object, ...], one_in: int, both: bool) -> Iterator[Any]:
    for scenario in SCENARIOS:
        if name in SERVERS:
            in_first = SERVERS[drawn(scenario, "server", len(SERVERS))] == name
        else:
            in_first = one_in != NEVER and drawn(scenario, name, one_in) == 0
        for driver in drivers(scenario):
            now = in_first and (both or driver == driver_of(scenario, name))
            if now or tiers.running not in ("test", "check"):
                yield pytest.param(*first, scenario, driver, marks=() if now else SECOND)


def configuration(
    name: str, *first: object, one_in: int, only: Sequence[str] = DRIVERS
) -> list[Any]:
    """Return parameters (*first*, scenario, driver) of a configuration: one scenario in *one_in*
    with one driver in the second tier, and the others in the third.
    """
    return list(_configuration(name, first, one_in, only))


def _configuration(
    name: str, first: tuple[object, ...], one_in: int, only: Sequence[str]
) -> Iterator[Any]:
    if tiers.running in ("test", "check"):
        return
    whole = tiers.running != "verify"
    for scenario in SCENARIOS:
        in_share = drawn(scenario, name, one_in) == 0
        own = [driver for driver in drivers(scenario) if driver in only]
        for driver in own:
            if in_share and (len(own) == 1 or driver == driver_of(scenario, name)):
                yield pytest.param(*first, scenario, driver, marks=SECOND)
            elif whole:
                yield pytest.param(*first, scenario, driver, marks=THIRD)


def name(value: object) -> str:
    """Return the test id of a parameter."""
    return value if isinstance(value, str) else repr(value)


def run(
    scenario: Scenario, store: Store, driver: str, folder: Path, max_waiters: int | None = None
) -> None:
    """Run it at the pace of this machine; skip it if the store lacks a needed capability. At most
    *max_waiters* wait at once.
    """
    if reason := scenario.skip_reason(store, driver):
        pytest.skip(reason)
    waiters = min(store.max_waiters, max_waiters or store.max_waiters)
    run_scenario(scenario, store._replace(pace=pace(), max_waiters=waiters), driver, folder)
