"""All scenarios, by the name of their store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation import cancelled_waits, document, redis, redlock, sql
from verification.simulation.election import (
    ElectionScenario,
    PeriodScenario,
    RedisElectionScenario,
    RedisPeriodScenario,
    SqlPeriodScenario,
    ZooElectionScenario,
)
from verification.simulation.local_handoff import (
    CachedScenario,
    DocumentHandoffScenario,
    HandoffScenario,
    RedisCachedScenario,
    RedisHandoffScenario,
)
from verification.simulation.modes import (
    DeathsScenario,
    EndingScenario,
    ModesScenario,
    NumberedScenario,
    NumberedSqlScenario,
    PersistentScenario,
    SessionsModesScenario,
    SqlModesScenario,
)
from verification.simulation.rates import (
    DocumentRatesScenario,
    RatesScenario,
    RedisRatesScenario,
    SqlRatesScenario,
)
from verification.simulation.redis_modes import (
    NumberedRedisScenario,
    PersistentRedisScenario,
    RedisModesScenario,
)
from verification.simulation.scenario import Outcome, Scenario
from verification.simulation.yields import (
    CachedYieldScenario,
    DocumentYieldScenario,
    HandoffYieldScenario,
    RedisYieldScenario,
    SqliteYieldScenario,
    SqlYieldScenario,
    YieldScenario,
    ZooYieldScenario,
)
from verification.simulation.zoo import (
    EnsembleScenario,
    EnsembleSingleScenario,
    SingleScenario,
    ZooScenario,
)
from verification.simulation.zoo_modes import (
    EnsembleModesScenario,
    NumberedEnsembleScenario,
    NumberedZooScenario,
    PersistentZooScenario,
    ZooModesScenario,
)

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.queue import NodeBackend

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine


class MemoryScenario(Scenario):
    """The same rules, with the guarantees of the store in memory."""

    def make_backend(self, machine: Machine) -> NodeBackend:
        """Make the backend of a machine."""
        return NodeBackend(CAPABILITIES, "store", "listener")


# Scenarios that must have no violation.
KINDS: dict[str, type[Scenario]] = {
    "memory": MemoryScenario,
    "sqlite": Scenario,
    "modes": ModesScenario,
    "modes ending": EndingScenario,
    "modes deaths": DeathsScenario,
    "modes persistent": PersistentScenario,
    "numbered": NumberedScenario,
    "redis": redis.RedisScenario,
    "redis modes": RedisModesScenario,
    "redis modes persistent": PersistentRedisScenario,
    "numbered redis": NumberedRedisScenario,
    "redlock": redlock.RedlockScenario,
    "redlock survivable loss": redlock.SurvivableLossScenario,
    "rates": RatesScenario,
    "rates document": DocumentRatesScenario,
    "rates redis": RedisRatesScenario,
    "rates sql": SqlRatesScenario,
    "yields": YieldScenario,
    "yields cached": CachedYieldScenario,
    "yields document": DocumentYieldScenario,
    "yields local handoff": HandoffYieldScenario,
    "yields redis": RedisYieldScenario,
    "yields sql": SqlYieldScenario,
    "yields sqlite": SqliteYieldScenario,
    "yields zookeeper": ZooYieldScenario,
    "zookeeper": ZooScenario,
    "zookeeper single": SingleScenario,
    "zookeeper ensemble": EnsembleScenario,
    "zookeeper ensemble single": EnsembleSingleScenario,
    "zookeeper modes": ZooModesScenario,
    "zookeeper modes persistent": PersistentZooScenario,
    "zookeeper ensemble modes": EnsembleModesScenario,
    "numbered zookeeper": NumberedZooScenario,
    "numbered zookeeper ensemble": NumberedEnsembleScenario,
    "sql": sql.SqlScenario,
    "sql sessions": sql.SessionsScenario,
    "sql modes": SqlModesScenario,
    "numbered sql": NumberedSqlScenario,
    "sql sessions modes": SessionsModesScenario,
    "document": document.DocumentScenario,
    "document modes": document.DocumentModesScenario,
    "numbered document": document.NumberedDocumentScenario,
    "document modes persistent": document.PersistentDocumentScenario,
    "document periods": document.DocumentPeriodScenario,
    "document stopped waiters": document.StoppedWaitersScenario,
    "document tries": document.TriesScenario,
    "document far": document.FarScenario,
    "local handoff": HandoffScenario,
    "local handoff redis": RedisHandoffScenario,
    "local handoff document": DocumentHandoffScenario,
    "cached": CachedScenario,
    "cached redis": RedisCachedScenario,
    "election": ElectionScenario,
    "election redis": RedisElectionScenario,
    "election zookeeper": ZooElectionScenario,
    "periods": PeriodScenario,
    "periods redis": RedisPeriodScenario,
    "sql periods": SqlPeriodScenario,
    "cancelled waits": cancelled_waits.CancelledWaits,
    "cancelled waits redis": cancelled_waits.CancelledRedis,
    "cancelled waits redlock": cancelled_waits.CancelledRedlock,
    "cancelled waits zookeeper": cancelled_waits.CancelledZoo,
    "cancelled waits sql": cancelled_waits.CancelledSql,
    "cancelled waits sql sessions": cancelled_waits.CancelledSessions,
    "cancelled waits local handoff": cancelled_waits.CancelledHandoff,
}
# Scenarios with faults that the store does not survive: they show which guarantees remain.
SHOWN: dict[str, type[Scenario]] = {
    "redis data loss": redis.DataLossScenario,
    "redis data loss slow clock": redis.RewoundClockScenario,
    "sql sessions terminated": sql.TerminatedScenario,
    "redlock majority loss": redlock.MajorityLossScenario,
    "redlock minority loss": redlock.MinorityLossScenario,
}
LAST_LINES = 80


def play(kind: str, seed: int, traced: bool = False) -> Outcome:
    """Play a seed of a scenario."""
    return (KINDS | SHOWN)[kind](seed, traced).run()


def report(kind: str, seed: int) -> str:
    """The readable trace of a failing seed."""
    outcome = play(kind, seed, traced=True)
    return "\n".join([f"{kind}, seed {seed}: {outcome.violation}", *outcome.trace[-LAST_LINES:]])
