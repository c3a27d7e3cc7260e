"""Which share of the suite is played on which store, and in which tier.

In memory and on SQLite everything is played in the first tier. On each family of servers every
scenario is, in threads or in asyncio by turns; the other driver is in the second tier. So are the
variants of a store: every scenario is played on one of them, or several, by turns. With
LEASELOCK_CONFORMANCE=all, which `make conformance` sets, it is on each and in both drivers.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.pace import pace

from leaselock.testing.conformance import DRIVERS, SCENARIOS, Scenario, Store, play

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ALL = os.environ.get("LEASELOCK_CONFORMANCE") == "all"


def drivers(scenario: Scenario) -> Sequence[str]:
    """Those that a scenario is about."""
    return [driver for driver in DRIVERS if driver in scenario.needs] or DRIVERS


EVERY = [(scenario, driver) for scenario in SCENARIOS for driver in drivers(scenario)]


def in_turn(*first: object) -> list[Any]:
    """The parameters (*first*, a scenario, a driver): one driver of each is in the first tier."""
    return list(_in_turn(first))


def _in_turn(first: tuple[object, ...]) -> Iterator[Any]:
    for n, scenario in enumerate(SCENARIOS):
        own = drivers(scenario)
        for driver in own:
            # A scenario and the next one of its theme are in different drivers.
            its_turn = driver == own[n % len(own)]
            marks = () if its_turn else pytest.mark.variant
            yield pytest.param(*first, scenario, driver, marks=marks)


def shared(variants: Sequence[str], at_once: int = 1) -> list[Any]:
    """Each scenario with so many of the variants, and the drivers whose turn it is."""
    found = _shared(variants, len(variants) if ALL else at_once)
    return [pytest.param(*values, marks=pytest.mark.variant) for values in found]


def _shared(variants: Sequence[str], at_once: int) -> Iterator[tuple[str, Scenario, str]]:
    for n, scenario in enumerate(SCENARIOS):
        own = drivers(scenario)
        for m in range(at_once):
            turn = n * at_once + m
            for driver in own if ALL else [own[turn // len(variants) % len(own)]]:
                yield variants[turn % len(variants)], scenario, driver


def name(value: object) -> str:
    """How a parameter is called."""
    return value if isinstance(value, str) else repr(value)


def run(scenario: Scenario, store: Store, driver: str, folder: Path) -> None:
    """Play it, at the pace of this machine; a skip if the store does not promise what it needs."""
    if reason := scenario.unfit(store, driver):
        pytest.skip(reason)
    play(scenario, store.slower(pace()), driver, folder)
