"""Scenarios in which `cancel` ends single waits while others of the same client go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.judge import Violation
from verification.simulation.redis import RedisScenario
from verification.simulation.redlock import RedlockScenario
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.sql import SessionsScenario, SqlScenario
from verification.simulation.user import User
from verification.simulation.zoo import ZooScenario

from leaselock._core.client.hold import ASKED, Hold
from leaselock.errors import AcquireCancelled

if TYPE_CHECKING:
    from verification.simulation.scenario import Outcome
    from verification.simulation.simulator import Machine, Run

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.client.mutex import Mutex

# Seconds: the mean time between two cancellations, and within which a cancelled wait ends where
# nothing fails.
BETWEEN, SOON = 1.0, 0.5
# How many steps a process may take in a second. Usual are some dozens.
MOST_STEPS = 200


def waits_of(mutex: Mutex) -> list[Hold]:
    """The claims of this lock object that wait."""
    table = mutex.registry.table.values()
    return [hold for hold in table if hold.state in ASKED and hold.lock is mutex.reference]


class Cancelled(User):
    """A user whose waits may be cancelled."""

    scenario: CancelledWaits

    def _mutex(self) -> Mutex:
        mutex = super()._mutex()
        self.scenario.mutexes.setdefault(self.machine, []).append(mutex)
        return mutex

    async def _once(self) -> None:
        try:
            await super()._once()
        except AcquireCancelled:
            if not self.scenario.cancelled:
                raise Violation("answer", "a wait was cancelled without a request") from None


class CancelledWaits(Scenario):
    """The scenario of a store, with more users of each client."""

    users: tuple[int, ...] = (2, 3, 4)

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.mutexes: dict[Machine, list[Mutex]] = {}
        self.cancelled = 0
        self.turns: dict[Run, int] = {}
        super().__init__(seed, traced)

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return Cancelled(self, machine, service)

    def run(self) -> Outcome:
        """Play the scenario."""
        self.simulator.after(1.0, self._cancel_one)
        self.simulator.after(1.0, self._count_steps)
        return super().run()

    def _cancel_one(self) -> None:
        simulator = self.simulator
        if simulator.time >= HEAL:
            return
        simulator.after(simulator.chance.expovariate(1.0 / BETWEEN), self._cancel_one)
        waiting = [
            (machine, mutex)
            for machine, mutexes in self.mutexes.items()
            if machine.alive and machine.frozen_until <= simulator.time
            for mutex in mutexes
            if waits_of(mutex)
        ]
        if not waiting:
            return
        machine, mutex = simulator.chance.choice(waiting)
        waits = waits_of(mutex)
        count = mutex.cancel()
        self.cancelled += count
        simulator.moves += 1
        simulator.note(machine, f"cancels {count} waits for {mutex.name}")

        def ended() -> None:
            if machine.alive and any(map(Hold.has_operation, waits)):
                raise Violation("answer", f"a cancelled wait of {machine.name} goes on")

        if self.calm:
            simulator.after(SOON, ended)

    def _count_steps(self) -> None:
        """No process asks again and again."""
        self.simulator.after(1.0, self._count_steps)
        before, self.turns = self.turns, {}
        for machine in self.judge.machines.values():
            for run in machine.runs:
                self.turns[run] = run.turn
                if run.turn - before.get(run, 0) > MOST_STEPS:
                    raise Violation("spin", f"{machine.name} {run.name} asks again and again")


class CancelledRedis(CancelledWaits, RedisScenario):
    """On Redis."""


class CancelledRedlock(CancelledWaits, RedlockScenario):
    """On several masters."""


class CancelledZoo(CancelledWaits, ZooScenario):
    """On ZooKeeper."""


class CancelledSql(CancelledWaits, SqlScenario):
    """On PostgreSQL, by leases."""


class CancelledSessions(CancelledWaits, SessionsScenario):
    """On PostgreSQL, by sessions."""
