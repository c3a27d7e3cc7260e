"""Which share of the suite is played on a store that is a variant of another one.

Every scenario is played on one variant or several, in threads or in asyncio, by turns: so a run of
all tests stays short. With LEASELOCK_CONFORMANCE=all, which `make conformance` sets, it is
on each and in both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from leaselock.testing.conformance import DRIVERS, SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALL = os.environ.get("LEASELOCK_CONFORMANCE") == "all"


def shared(variants: Sequence[str], at_once: int = 1) -> list[tuple[str, Scenario, str]]:
    """Each scenario with so many of the variants, and the drivers whose turn it is."""
    return list(_shared(variants, len(variants) if ALL else at_once))


def _shared(variants: Sequence[str], at_once: int) -> Iterator[tuple[str, Scenario, str]]:
    for n, scenario in enumerate(SCENARIOS):
        own = [driver for driver in DRIVERS if driver in scenario.needs] or DRIVERS
        for m in range(at_once):
            turn = n * at_once + m
            for driver in own if ALL else [own[turn // len(variants) % len(own)]]:
                yield variants[turn % len(variants)], scenario, driver


def name(value: object) -> str:
    """How a parameter is called."""
    return value if isinstance(value, str) else repr(value)
