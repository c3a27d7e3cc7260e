"""Runs a scenario: on a fresh store, in a new harness, with clean-up.

All modules with scenarios are imported here; importing them registers their scenarios.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from testkit.conformance import (
    cancellation,
    contention,
    detached,
    elections,
    exclusion,
    forks,
    inspection,
    interruption,
    leases,
    lifecycle,
    loops,
    losses,
    maintenance,
    modes,
    names,
    options,
    outages,
    owners,
    periods,
    processes,
    queues,
    reentrancy,
    slots,
    tasks,
    tokens,
    usage,
    waiting,
    watching,
)
from testkit.conformance.asyncio_harness import AsyncioHarness
from testkit.conformance.scenario import SCENARIOS, Scenario
from testkit.conformance.thread_harness import ThreadHarness

if TYPE_CHECKING:
    from pathlib import Path

    from testkit.conformance.harness import Harness
    from testkit.conformance.store import Store

MODULES = (
    exclusion,
    owners,
    reentrancy,
    waiting,
    queues,
    leases,
    losses,
    tokens,
    processes,
    lifecycle,
    forks,
    detached,
    names,
    options,
    outages,
    inspection,
    watching,
    periods,
    elections,
    maintenance,
    usage,
    cancellation,
    interruption,
    loops,
    modes,
    slots,
    contention,
    tasks,
)
HARNESSES: dict[str, type[Harness]] = {
    harness.driver: harness for harness in (ThreadHarness, AsyncioHarness)
}


def run_scenario(scenario: Scenario, store: Store, driver: str, folder: Path) -> None:
    """Run *scenario* on a fresh instance of *store*; raise the error that shows its failure."""
    harness = HARNESSES[driver](store, store.fresh(folder), folder)
    alone = scenario.alone
    coroutine = run_in_process(harness, scenario.name) if alone else scenario.function(harness)
    harness.run(harness.run_and_close(coroutine))


async def run_in_process(harness: Harness, name: str) -> None:
    """Run a scenario in a process of its own."""
    await harness.process(run_by_name, name).end()


async def run_by_name(harness: Harness, name: str) -> None:
    """Run a scenario in this process; called in the process that `run_in_process` starts."""
    (found,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    await harness.run_and_close(found.function(harness))
