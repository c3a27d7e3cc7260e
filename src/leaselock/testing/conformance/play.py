"""Play a scenario: make a fresh store and a world, run the story, clear away what it leaves.

Every theme of the suite is named here; importing them fills the register.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.testing.conformance import (
    cancellation,
    detached,
    exclusion,
    forks,
    leases,
    lifecycle,
    loops,
    losses,
    names,
    owners,
    passing,
    processes,
    queues,
    reentrancy,
    sight,
    terms,
    tokens,
    upkeep,
    usage,
    waiting,
)
from leaselock.testing.conformance.aio import InAsyncio
from leaselock.testing.conformance.scenario import SCENARIOS, Scenario
from leaselock.testing.conformance.threads import InThreads

if TYPE_CHECKING:
    from pathlib import Path

    from leaselock.testing.conformance.store import Store
    from leaselock.testing.conformance.world import World

THEMES = (
    exclusion,
    owners,
    reentrancy,
    waiting,
    queues,
    leases,
    losses,
    tokens,
    passing,
    processes,
    lifecycle,
    forks,
    detached,
    names,
    terms,
    sight,
    upkeep,
    usage,
    cancellation,
    loops,
)
WORLDS: dict[str, type[World]] = {world.driver: world for world in (InThreads, InAsyncio)}


def play(scenario: Scenario, store: Store, driver: str, folder: Path) -> None:
    """Play *scenario* on a fresh place of *store*; raise whatever shows that it fails."""
    world = WORLDS[driver](store, store.fresh(folder), folder)
    story = supervise(world, scenario.name) if scenario.alone else scenario.story(world)
    world.run(world.whole(story))


async def supervise(world: World, name: str) -> None:
    """Have a scenario played by a process of its own."""
    await world.process(play_alone, name).end()


async def play_alone(world: World, name: str) -> None:
    """In that process: play it."""
    (found,) = (scenario for scenario in SCENARIOS if scenario.name == name)
    await world.whole(found.story(world))
