"""All stories, by the name of the store that they are played on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulation import redis, redlock, sql
from tests.simulation.passing import Passing, PassingOnRedis, Sticky, StickyOnRedis
from tests.simulation.story import Outcome, Story
from tests.simulation.zoo import EnsembleSingleStory, EnsembleStory, SingleStory, ZooStory

from leaselock.backends.memory.store import CAPABILITIES
from leaselock.core.queue import NodeQueue

if TYPE_CHECKING:
    from tests.simulation.world import Machine


class MemoryStory(Story):
    """The same rules, on what the store in memory promises."""

    def make_backend(self, machine: Machine) -> NodeQueue:
        """How its machines lock."""
        return NodeQueue(CAPABILITIES, "store", "ear")


# What no fault in it may break.
KINDS: dict[str, type[Story]] = {
    "memory": MemoryStory,
    "sqlite": Story,
    "redis": redis.RedisStory,
    "redlock": redlock.RedlockStory,
    "redlock in part": redlock.MinorityStory,
    "zookeeper": ZooStory,
    "zookeeper single": SingleStory,
    "zookeeper ensemble": EnsembleStory,
    "zookeeper ensemble single": EnsembleSingleStory,
    "sql": sql.SqlStory,
    "sql sessions": sql.SessionsStory,
    "passing": Passing,
    "passing redis": PassingOnRedis,
    "sticky": Sticky,
    "sticky redis": StickyOnRedis,
}
# With faults that the store does not survive: played to show what is left then.
SHOWN: dict[str, type[Story]] = {
    "redis that forgets": redis.ForgetfulStory,
    "redis that repeats": redis.RewoundStory,
    "sql sessions that end": sql.EndedStory,
    "redlock that forgets": redlock.ForgetfulStory,
    "redlock that forgets in part": redlock.UnaskedStory,
}
LAST_LINES = 80


def play(kind: str, seed: int, traced: bool = False) -> Outcome:
    """One seed of one kind."""
    return (KINDS | SHOWN)[kind](seed, traced).tell()


def report(kind: str, seed: int) -> str:
    """The trace of a failing seed, for people."""
    outcome = play(kind, seed, traced=True)
    return "\n".join([f"{kind}, seed {seed}: {outcome.violation}", *outcome.trace[-LAST_LINES:]])
