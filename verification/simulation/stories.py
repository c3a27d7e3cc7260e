"""All stories, by the name of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation import cancelled_waits, document, redis, redlock, sql
from verification.simulation.election import (
    ElectionStory,
    PeriodStory,
    RedisElectionStory,
    RedisPeriodStory,
    SqlPeriodStory,
    ZooElectionStory,
)
from verification.simulation.local_handoff import (
    CachedStory,
    HandoffStory,
    RedisCachedStory,
    RedisHandoffStory,
)
from verification.simulation.modes import (
    ModesStory,
    NumberedSqlStory,
    NumberedStory,
    PersistentStory,
    SessionsModesStory,
    SqlModesStory,
)
from verification.simulation.rates import RatesStory, RedisRatesStory, SqlRatesStory
from verification.simulation.redis_modes import (
    NumberedRedisStory,
    PersistentRedisStory,
    RedisModesStory,
)
from verification.simulation.story import Outcome, Story
from verification.simulation.yields import RedisYieldStory, SqlYieldStory, YieldStory
from verification.simulation.zoo import EnsembleSingleStory, EnsembleStory, SingleStory, ZooStory
from verification.simulation.zoo_modes import (
    EnsembleModesStory,
    NumberedEnsembleStory,
    NumberedZooStory,
    PersistentZooStory,
    ZooModesStory,
)

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.queue import NodeQueue

if TYPE_CHECKING:
    from verification.simulation.world import Machine


class MemoryStory(Story):
    """The same rules, with the guarantees of the store in memory."""

    def make_backend(self, machine: Machine) -> NodeQueue:
        """Make the backend of a machine."""
        return NodeQueue(CAPABILITIES, "store", "listener")


# Stories that must have no violation.
KINDS: dict[str, type[Story]] = {
    "memory": MemoryStory,
    "sqlite": Story,
    "modes": ModesStory,
    "modes persistent": PersistentStory,
    "numbered": NumberedStory,
    "redis": redis.RedisStory,
    "redis modes": RedisModesStory,
    "redis modes persistent": PersistentRedisStory,
    "numbered redis": NumberedRedisStory,
    "redlock": redlock.RedlockStory,
    "redlock survivable loss": redlock.SurvivableLossStory,
    "rates": RatesStory,
    "rates redis": RedisRatesStory,
    "rates sql": SqlRatesStory,
    "yields": YieldStory,
    "yields redis": RedisYieldStory,
    "yields sql": SqlYieldStory,
    "zookeeper": ZooStory,
    "zookeeper single": SingleStory,
    "zookeeper ensemble": EnsembleStory,
    "zookeeper ensemble single": EnsembleSingleStory,
    "zookeeper modes": ZooModesStory,
    "zookeeper modes persistent": PersistentZooStory,
    "zookeeper ensemble modes": EnsembleModesStory,
    "numbered zookeeper": NumberedZooStory,
    "numbered zookeeper ensemble": NumberedEnsembleStory,
    "sql": sql.SqlStory,
    "sql sessions": sql.SessionsStory,
    "sql modes": SqlModesStory,
    "numbered sql": NumberedSqlStory,
    "sql sessions modes": SessionsModesStory,
    "document": document.DocumentStory,
    "document modes": document.DocumentModesStory,
    "document modes persistent": document.PersistentDocumentStory,
    "document periods": document.DocumentPeriodStory,
    "document stopped waiters": document.StoppedWaitersStory,
    "document tries": document.TriesStory,
    "local handoff": HandoffStory,
    "local handoff redis": RedisHandoffStory,
    "cached": CachedStory,
    "cached redis": RedisCachedStory,
    "election": ElectionStory,
    "election redis": RedisElectionStory,
    "election zookeeper": ZooElectionStory,
    "periods": PeriodStory,
    "periods redis": RedisPeriodStory,
    "sql periods": SqlPeriodStory,
    "cancelled waits": cancelled_waits.CancelledWaits,
    "cancelled waits redis": cancelled_waits.CancelledRedis,
    "cancelled waits redlock": cancelled_waits.CancelledRedlock,
    "cancelled waits zookeeper": cancelled_waits.CancelledZoo,
    "cancelled waits sql": cancelled_waits.CancelledSql,
    "cancelled waits sql sessions": cancelled_waits.CancelledSessions,
    "cancelled waits local handoff": cancelled_waits.CancelledHandoff,
}
# Stories with faults that the store does not survive: they show which guarantees remain.
SHOWN: dict[str, type[Story]] = {
    "redis data loss": redis.DataLossStory,
    "redis data loss slow clock": redis.RewoundClockStory,
    "sql sessions terminated": sql.TerminatedStory,
    "redlock majority loss": redlock.MajorityLossStory,
    "redlock minority loss": redlock.MinorityLossStory,
}
LAST_LINES = 80


def play(kind: str, seed: int, traced: bool = False) -> Outcome:
    """Play a seed of a story."""
    return (KINDS | SHOWN)[kind](seed, traced).run()


def report(kind: str, seed: int) -> str:
    """The readable trace of a failing seed."""
    outcome = play(kind, seed, traced=True)
    return "\n".join([f"{kind}, seed {seed}: {outcome.violation}", *outcome.trace[-LAST_LINES:]])
