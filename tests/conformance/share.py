"""Which part of the suite runs on which store, and in which tier.

In memory and on SQLite everything runs in the first tier, with few waiters where a scenario is
about many; those with many are in the second. Every scenario runs there on two of the three
kinds of servers, in rotation, with threads or asyncio, in alternation; the third server and the
other driver are in the second tier. So are the variants of a store: each scenario runs on one or
several of them, in rotation. With LEASELOCK_CONFORMANCE=all, which `make conformance` sets, each
runs on every variant and driver.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from testkit.conformance import DRIVERS, SCENARIOS, Scenario, Store, run_scenario
from tests.pace import pace

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ALL = os.environ.get("LEASELOCK_CONFORMANCE") == "all"


def drivers(scenario: Scenario) -> Sequence[str]:
    """Return the drivers that a scenario is about."""
    return [driver for driver in DRIVERS if driver in scenario.needs] or DRIVERS


EVERY = [(scenario, driver) for scenario in SCENARIOS for driver in drivers(scenario)]
# Those about many waiters.
MANY_WAITERS = [each for each in EVERY if ".many_waiters_" in each[0].name]
SERVERS = ("redis", "postgres", "zookeeper")


def rests(server: str, n: int) -> bool:
    """Return whether the n-th scenario is left to the other two servers in the first tier."""
    return SERVERS[n % len(SERVERS)] == server


def in_turn(server: str, *first: object) -> list[Any]:
    """Return parameters (*first*, scenario, driver); one driver of each is in the first tier,
    unless the server rests.
    """
    return list(_in_turn(server, first))


def _in_turn(server: str, first: tuple[object, ...]) -> Iterator[Any]:
    for n, scenario in enumerate(SCENARIOS):
        own = drivers(scenario)
        for driver in own:
            # Consecutive scenarios of a module alternate between the drivers.
            its_turn = driver == own[n % len(own)] and not rests(server, n)
            marks = () if its_turn else pytest.mark.variant
            yield pytest.param(*first, scenario, driver, marks=marks)


def shared(variants: Sequence[str], at_once: int = 1) -> list[Any]:
    """Return the parameters of `turns` for the second tier."""
    return [pytest.param(*values, marks=pytest.mark.variant) for values in turns(variants, at_once)]


def turns(variants: Sequence[str], at_once: int = 1) -> list[tuple[str, Scenario, str]]:
    """Return each scenario with *at_once* of the variants, and drivers in rotation."""
    return list(_shared(variants, len(variants) if ALL else at_once))


def _shared(variants: Sequence[str], at_once: int) -> Iterator[tuple[str, Scenario, str]]:
    for n, scenario in enumerate(SCENARIOS):
        own = drivers(scenario)
        for m in range(at_once):
            turn = n * at_once + m
            for driver in own if ALL else [own[turn // len(variants) % len(own)]]:
                yield variants[turn % len(variants)], scenario, driver


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
