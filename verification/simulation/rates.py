"""Scenarios with permits that stay taken for a period after their grant, which limits the grants in
any such period, by the clock of the store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from verification.simulation.document import DocumentModesJudge, DocumentModesScenario
from verification.simulation.judge import Violation
from verification.simulation.modes import (
    LIMIT,
    SEMAPHORE,
    ManyHolds,
    ModesJudge,
    ModesPlay,
    ModesScenario,
    SqlModesJudge,
    SqlModesScenario,
)
from verification.simulation.redis_modes import RedisModesJudge, RedisModesScenario, read

from leaselock._backends.document.backend import DocumentBackend
from leaselock._backends.document.engine import Engine
from leaselock._core.contract.marks import free_from_of
from leaselock._core.rows.rules import COOLING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from verification.simulation.simulator import Machine

    from leaselock._backends.redis.backend import RedisBackend
    from leaselock._core.client.hold import Hold

PERIODS = (0.5, 2.0, 5.0)
# On documents clients count, whose clocks have different rates: that shows in a long period.
LONG_PERIOD = 20.0
# Seconds: a store that counts in milliseconds may free a permit too early by this much.
ROUNDING = 1e-3


class Begun(NamedTuple):
    """A grant, and the earlier ones whose period had not ended then."""

    permits: int
    beside: tuple[str, ...]


class RateJudge(ManyHolds):
    """Counts the grants that were used, in each period from the confirmation of one on."""

    period: float

    def begin(self) -> None:
        """Start with nothing seen."""
        super().begin()
        self.begun: dict[str, Begun] = {}
        self.ends: dict[str, float] = {}
        self.used: set[str] = set()

    def note_holds(self, holds: Iterable[tuple[str, int, str]], now: float) -> None:
        """Note the holds that have begun: id, permits and metadata of those in the store."""
        self.ends = {one: end for one, end in self.ends.items() if end > now + ROUNDING}
        for claim_id, permits, metadata in holds:
            if claim_id not in self.begun and free_from_of(metadata):
                self.begun[claim_id] = Begun(permits, tuple(self.ends))
                self.ends[claim_id] = now + self.period

    def _granted(self, hold: Hold, machine: Machine) -> None:
        super()._granted(hold, machine)
        if self.breaking:
            return
        if hold.claim.id not in self.begun:
            raise Violation("period", f"{hold.claim.id} holds, and its period has not begun")
        self.used.add(hold.claim.id)
        for claim_id in self.used:
            permits, beside = self.begun[claim_id]
            others = [self.begun[other].permits for other in beside if other in self.used]
            if permits + sum(others) > LIMIT:
                raise Violation(
                    "period", f"{claim_id} is one grant too many in {self.period} s: {beside}"
                )


class RatesPlay(ModesPlay):
    """Users of permits that stay taken for a while."""

    kinds = ([SEMAPHORE],)
    periods: tuple[float, ...] = PERIODS

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        judge: Any = self.judge
        self.period = judge.period = self.simulator.chance.choice(self.periods)
        self.resizes, judge.most = False, LIMIT


class RulesRateJudge(RateJudge, ModesJudge):
    """On the rules."""

    def is_cooling(self, holder: str) -> bool:
        """A hold that cools down has no owner."""
        return holder.startswith(COOLING)

    def check(self) -> None:
        """After each step."""
        entry = self.model.table.entries.get(SEMAPHORE)
        if entry is not None:
            found = [hold for hold in entry.holds.values() if hold.lifetime != "cooling"]
            self.note_holds([(h.id, h.permits, h.metadata) for h in found], self.simulator.time)
        super().check()


class RatesScenario(RatesPlay, ModesScenario):
    """The rules of the memory store."""

    def make_judge(self) -> RulesRateJudge:
        """Of permits that stay taken."""
        judge = RulesRateJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class SqlRateJudge(RateJudge, SqlModesJudge):
    """On the tables."""

    def check(self) -> None:
        """After each step."""
        model: Any = self.model
        if SEMAPHORE not in model.owners:
            rows = model.tables.holds.get(SEMAPHORE, {}).values()
            found = [row for row in rows if row["lifetime"] != "cooling"]
            for row in sorted(found, key=lambda row: row["token"]):
                # The time of its transaction, which is not that of the commit.
                held = (row["id"], row["permits"], row["metadata"])
                if held[0] not in self.begun:
                    self.note_holds([held], row["token"] / 1e6)
        super().check()

    def _is_abandoned(self, client: str, holder: str) -> bool:
        return not holder.startswith(COOLING) and super()._is_abandoned(client, holder)


class SqlRatesScenario(RatesPlay, SqlModesScenario):
    """Protocol "lease" of PostgreSQL."""

    def make_judge(self) -> SqlRateJudge:
        """Of permits that stay taken."""
        self.simulator.models = {"server": self}  # type: ignore[dict-item]
        judge = SqlRateJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class RedisRateJudge(RateJudge, RedisModesJudge):
    """On the keys."""

    def check(self) -> None:
        """After each step."""
        server = self._server()
        found = [h for h in read(server, SEMAPHORE).holds if h.lifetime != "cooling"]
        held = [(hold.id, hold.permits, hold.metadata) for hold in found]
        self.note_holds(held, server.data.micros() / 1e6)
        super().check()


class RedisRatesScenario(RatesPlay, RedisModesScenario):
    """The scripts of Redis."""

    def make_judge(self) -> RedisRateJudge:
        """Of permits that stay taken."""
        # A grant that is not confirmed by replicas is given back, which ends its period.
        self.settings = self.settings._replace(replicas=0)
        judge = RedisRateJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.scenario, judge.stall = self, self.stall()
        judge.begin()
        return judge

    def make_backend(self, machine: Machine) -> RedisBackend:
        """Make the production backend."""
        backend = super().make_backend(machine)
        backend.capabilities = backend.capabilities._replace(min_hold=True)
        return backend


class NotingEngine(Engine):
    """Notes when each write was sent: a period counts from then on."""

    judge: DocumentRateJudge

    async def write(self, *words: Any) -> Any:
        """Write."""
        self.judge.sent[f"{self.writer}.{self.writes + 1}"] = self.judge.simulator.time
        return await super().write(*words)


class NotingBackend(DocumentBackend):
    """Its engine notes writes."""

    engine_type = NotingEngine


class DocumentRateJudge(RateJudge, DocumentModesJudge):
    """On each document that is written."""

    def begin(self) -> None:
        """Start with nothing seen."""
        super().begin()
        self.sent: dict[str, float] = {}

    def _check_write(self, name: str, before: dict[str, Any], document: dict[str, Any]) -> None:
        if name == SEMAPHORE:
            found = [hold for hold in document["holds"] if hold.get("lifetime") != "cooling"]
            held = [(hold["id"], hold.get("permits", 1), hold["metadata"]) for hold in found]
            self.note_holds(held, self.sent[document["by"]])
        super()._check_write(name, before, document)

    def _check_overtaken(
        self, hold: dict[str, Any], before: dict[str, Any], document: dict[str, Any]
    ) -> None:
        if not hold["id"].startswith(COOLING):  # what is left of a hold is no new one
            super()._check_overtaken(hold, before, document)

    def at_rest(self) -> None:
        """All were served. What cools down stays until a request finds that it has ended."""
        self.all_were_served()
        self.all_was_released()


class DocumentRatesScenario(RatesPlay, DocumentModesScenario):
    """Protocol "document"."""

    periods = (*PERIODS, LONG_PERIOD)
    end = 500.0
    backend = NotingBackend
    judge: DocumentRateJudge

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.judge.stall += self.period

    def make_backend(self, machine: Machine) -> DocumentBackend:
        """Make the production backend."""
        backend = super().make_backend(machine)
        assert isinstance(backend.engine, NotingEngine)
        backend.engine.judge = self.judge
        return backend

    def make_judge(self) -> DocumentRateJudge:
        """Of permits that stay taken."""
        super().make_judge()
        judge = DocumentRateJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge
