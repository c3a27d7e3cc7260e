"""Which share of the suite is played on a store that is a variant of another one.

Every scenario is played on each, in threads or in asyncio, by turns: so a run of all tests stays
short. With HOLDFAST_CONFORMANCE=all, which `make conformance` sets, it is both.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.testing.conformance import DRIVERS, SCENARIOS, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ALL = os.environ.get("HOLDFAST_CONFORMANCE") == "all"


def shared(variants: Sequence[str]) -> list[tuple[str, Scenario, str]]:
    """Each variant with each scenario, and the driver whose turn it is."""
    return list(_shared(variants))


def _shared(variants: Sequence[str]) -> Iterator[tuple[str, Scenario, str]]:
    for n, scenario in enumerate(SCENARIOS):
        own = [driver for driver in DRIVERS if driver in scenario.needs] or DRIVERS
        for m, variant in enumerate(variants):
            for driver in own if ALL else [own[(n + m) % len(own)]]:
                yield variant, scenario, driver


def name(value: object) -> str:
    """How a parameter is called."""
    return value if isinstance(value, str) else repr(value)
