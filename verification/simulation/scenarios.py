"""All scenarios, by the name of their store."""

from __future__ import annotations

import re
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
    DocumentYieldScenario,
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
from leaselock._core.rows.queue import NodeBackend

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
    "yields document": DocumentYieldScenario,
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
# What a violation names: a claim as its client and its number, a lock as it is written in Python.
CLAIMS = re.compile(r"\bm\w+\.\d+:\d+\b")
LOCKS = re.compile(r"'\w+'")


def play(kind: str, seed: int, traced: bool = False) -> Outcome:
    """Play a seed of a scenario."""
    return (KINDS | SHOWN)[kind](seed, traced).run()


def report(kind: str, seed: int) -> str:
    """The violation of a failing seed, the history of what it names, and the last steps of all."""
    outcome = play(kind, seed, traced=True)
    first = f"{kind}, seed {seed}: {outcome.violation}"
    return "\n".join([first, *history(outcome), "the last steps:", *outcome.trace[-LAST_LINES:]])


def history(outcome: Outcome) -> list[str]:
    """The requests for the claims that a violation names, with their answers, and what else the
    trace says about these claims; about the locks, where it names no claim.
    """
    text = outcome.violation or ""
    named = sorted({*CLAIMS.findall(text)} or {*LOCKS.findall(text)})
    if not named:
        return []
    wanted = re.compile("|".join(rf"(?<!\w){re.escape(name)}(?!\w)" for name in named))
    found, asked = [], dict[str, bool]()
    for line in outcome.trace:
        # The machine, and its thread or task.
        who = " ".join(line.split()[1:3])
        about = wanted.search(line) is not None
        if " asks " in line:
            asked[who] = about
        if about or (" is answered " in line and asked.get(who)):
            found.append(line)
    return [f"the history of {', '.join(named)}:", *found]
