"""Stories on PostgreSQL: the production text of protocol "lease" on a model of its tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import Judge, Violation
from tests.simulation.story import Story

from leaselock.backends.sql.model import Model
from leaselock.backends.sql.nodes import CAPABILITIES
from leaselock.core.effects import FOREVER
from leaselock.core.hold import State
from leaselock.core.queue import Queue

if TYPE_CHECKING:
    from tests.simulation.world import Machine

    from leaselock.core.hold import Hold


class SqlJudge(Judge):
    """What the tables have is known between transactions only; fairness is not judged."""

    def check(self) -> None:
        """After each step: no two believe, and tokens rise."""
        self.check_time()
        model: Any = self.model
        if self.looked_at((model.tables.changes, len(model.owners))):
            return
        self.remember_orphans()
        self.believers()
        self._check_rows()

    def _check_rows(self) -> None:
        """What the table has, outside of transactions, is what somebody wants."""
        model: Any = self.model
        now = model.tables.micros()
        for name, row in model.tables.locks.items():
            if name in model.owners or row["holder"] is None or row["expires"] <= now:
                continue
            hold = self.is_valid.get(row["holder"])
            if hold is not None and hold.state is State.FREE:
                raise Violation(f"{row['holder']} was released, and holds again")
            if hold is None and self._is_ghost(row["client"], row["holder"]):
                raise Violation(f"{row['holder']} holds for nobody")

    def _is_ghost(self, client: str, holder: str) -> bool:
        # A machine names its clients after itself.
        name = client.partition(".")[0]
        if not self.machines[name].alive:
            return False
        registry = self.registry[name]
        # Nobody tries for ever to give back what ends with its lease: a row that others have
        # locked for so long leaves it to that.
        given_up = self.given_up_by.get(holder, FOREVER) <= self.machines[name].now()
        return (
            not registry.in_flight.active
            and holder not in registry.pending_releases
            and not given_up
        )

    def _check_order(self, hold: Hold) -> None:
        """The order of grants is that of the tokens, which is checked."""

    def at_rest(self) -> None:
        """Everybody was served, nobody holds or waits for nothing, and no row is locked."""
        tables: Any = self.model.tables  # type: ignore[attr-defined]
        now = tables.micros()
        self.all_were_served()
        for name, row in tables.locks.items():
            if row["holder"] is not None and row["expires"] > now:
                raise Violation(f"{name!r} is held by nobody: {row['holder']}")
        for name, queue in tables.waiters.items():
            if [waiter for waiter in queue if waiter["expires"] > now]:
                raise Violation(f"somebody is left in the queue of {name!r}")
        if self.model.owners:  # type: ignore[attr-defined]
            raise Violation("a transaction was left open")
        self.all_was_given_back()


class SqlStory(Story):
    """One seed."""

    def make_model(self) -> Any:
        """A server."""
        world = self.world
        return Model(lambda: world.time, self._micros, world.after, self._thaws, self._delay)

    def _thaws(self, name: str) -> float | None:
        machine = self.judge.machines[name]
        return max(0.0, machine.frozen_until - self.world.time) if machine.alive else None

    def _delay(self) -> float | None:
        chance, faults = self.world.chance, self.world.faults
        if chance.random() < faults.lost_request / 2:
            return None
        return chance.expovariate(1.0 / faults.delay)

    def make_judge(self) -> SqlJudge:
        """Of tables."""
        return SqlJudge(self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Queue:
        """The queue."""
        return Queue(CAPABILITIES, "store", "ear")
