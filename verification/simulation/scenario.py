"""A scenario: a few machines that contend for a few locks, with faults.

The seed decides everything: the number of machines, their actions, the faults and their
probabilities. Faults stop at `HEAL`; at `END` all locks must be free and all waiters served.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from verification.models.sqlite_model import Model
from verification.simulation.forks import forked
from verification.simulation.judge import Judge, Violation
from verification.simulation.simulator import EPOCH, Faults, Machine, Simulator
from verification.simulation.user import User

from leaselock._backends.sqlite.store import CAPABILITIES
from leaselock._core.client.client_core import ClientCore
from leaselock._core.rows.queue import NodeBackend
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from verification.simulation.judge import Invariant

    from leaselock._core.client.lease_handle import LeaseHandle
    from leaselock._core.client.mutex import Mutex

HEAL = 30.0
END = 150.0
TIMEOUT = 2.0
LEASES = ((1.0, 2.0, 4.0), (1.0, 2.0, 4.0), (20.0,))
# How many locks a user acquires. Short scenarios cost half as much and find most planted bugs in
# the same time as long ones; a few bugs need many acquisitions.
LONG, SHORT = (3, 6, 10), (1, 2, 4)
LONG_ONES, EACH = 20_000, 10
# In every fifth of the others processes fork during a hold: the probability, and the maximum.
FORKING, FORK, MOST_CHILDREN = 5, 0.15, 2


def is_long(seed: int) -> bool:
    """Return whether the scenario is long: the first seeds, and every tenth of the others."""
    return seed < LONG_ONES or seed % EACH == 0


def has_forks(seed: int) -> bool:
    """Return whether processes fork. Not in the first seeds, so that old failures stay the same."""
    return seed >= LONG_ONES and seed % FORKING == 1


CRASH: Literal["crash"] = "crash"


class Outcome(NamedTuple):
    """The result of a seed."""

    seed: int
    violation: str | None
    grants: int
    steps: int
    trace: list[str]
    overlaps: int = 0
    invariant: Invariant | Literal["crash"] | None = None
    """What was violated; "crash" where an operation ended with an error that is none of ours."""


class Scenario:
    """One seed."""

    # The mean durations of the work under a lock, in seconds.
    works: tuple[float, ...] = (0.01, 0.3, 1.5)
    end = END
    # The numbers of threads or tasks of a machine.
    users: tuple[int, ...] = (1, 1, 2)
    # One in this number of scenarios has no faults of the network.
    one_calm_in = 4
    # The part of the leases that are renewed.
    renewed = 0.8
    # How often a machine crashes, each second, in a scenario with crashes.
    crash_chance = 0.1

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.seed = seed
        self.simulator = Simulator(seed, {}, Faults())
        chance = self.simulator.chance
        self.calm = chance.randrange(self.one_calm_in) == 0
        self.model = self.make_model()
        self.simulator.models = {"store": self.model, "listener": self.model}
        self.simulator.trace = [] if traced else None
        self.leases: tuple[float, ...] = chance.choice(LEASES)
        self.rounds = LONG if is_long(seed) else SHORT
        self.judge = self.make_judge()
        self.simulator.check = self.judge.check
        self.crashes = not self.calm and chance.random() < 0.5
        self.cancels = chance.random() < 0.4
        self.breaks = not self.calm and chance.random() < 0.2
        self.children_left = MOST_CHILDREN if has_forks(seed) else 0
        self.names = ["a", "b"][: chance.choice((1, 1, 2))]
        for number in range(chance.choice((2, 3, 4))):
            self._machine(f"m{number}")
        if not self.calm:
            self.simulator.faults = self._faults()

    def make_model(self) -> Any:
        """Make the store."""
        return Model(lambda: self.simulator.time, self._micros)

    def make_judge(self) -> Judge:
        """Make the judge."""
        return Judge(self.simulator, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Any:
        """Make the backend of a machine."""
        return NodeBackend(CAPABILITIES, "store", "listener")

    def _micros(self) -> int:
        return int((EPOCH + self.simulator.time) * 1e6)

    def _faults(self) -> Faults:
        # A random subset of the faults, each with a random probability. All faults at their maximum
        # would find less, because hardly any operation would succeed.
        chance = self.simulator.chance

        def some(maximum: float) -> float:
            return chance.random() * maximum if chance.random() < 0.5 else 0.0

        return Faults(
            delay=chance.choice((0.0005, 0.005, 0.02)),
            slow=some(0.02),
            lost_request=some(0.1),
            lost_reply=some(0.1),
            lost_message=some(0.3),
            freeze=some(0.05),
            freeze_mean=chance.choice((0.05, 1.0, 4.0)),
        )

    def _machine(self, name: str) -> None:
        machine = Machine(self.simulator, name)
        backend = self.make_backend(machine)
        service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=TIMEOUT)
        self.judge.enrol(machine, service)
        for number in range(self.simulator.chance.choice(self.users)):
            machine.start(self.make_user(machine, service).live(), f"user{number}")

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return User(self, machine, service)

    def perhaps_fork(
        self, parent: Machine, service: ClientCore, mutex: Mutex, handle: LeaseHandle
    ) -> None:
        """Perhaps fork the process during its hold; the child gets a copy of everything."""
        if not self.children_left or self.simulator.chance.random() >= FORK:
            return
        child = Machine(self.simulator, f"{parent.name}fork{self.children_left}")
        self.children_left -= 1
        self.simulator.note(parent, f"forks {child.name}")
        instead = {id(parent): child, **self.nodes_of(parent, child)}
        copies = forked(child, instead, service, mutex, handle)
        self.judge.enrol(child, copies.service)
        child.start(User(self, child, copies.service).live_on(copies), "user0")

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """The child's replacements for objects of its parent, by their `id`."""
        return {}

    def _disturb(self) -> None:
        """Sometimes crash a machine, cancel a user, or break a lock as an operator."""
        simulator, chance = self.simulator, self.simulator.chance
        if simulator.time >= HEAL:
            return
        simulator.after(chance.expovariate(1.0), self._disturb)
        alive = [m for m in self.judge.machines.values() if m.alive]
        machine = chance.choice(alive) if alive else None
        if machine is None:
            return
        if self.crashes and chance.random() < self.crash_chance:
            simulator.note(machine, "crashes")
            machine.crash()
        elif self.cancels and chance.random() < 0.3:
            self._cancel(machine)
        elif self.breaks and chance.random() < 0.1:
            machine.start(self._break(self.judge.services[machine.name]), "operator")

    def _cancel(self, machine: Machine) -> None:
        users = sorted((r.name, r) for r in machine.runs if r.name.startswith("user"))
        if users:
            name, run = self.simulator.chance.choice(users)
            self.simulator.note(machine, f"{name} is cancelled")
            self.simulator.interrupt(run)

    async def _break(self, service: ClientCore) -> None:
        try:
            name = self.simulator.chance.choice(self.names)
            self.judge.breaking = True
            await service.break_lock(name, None)
        except (StoreError, NotHeld):
            return

    def _heal(self) -> None:
        self.simulator.faults = Faults()
        for machine in self.judge.machines.values():
            machine.frozen_until = min(machine.frozen_until, self.simulator.time)

    def run(self) -> Outcome:
        """Play the scenario, and return its outcome."""
        violation: str | None = None
        invariant: Invariant | Literal["crash"] | None = None
        gc.disable()  # a collection at a random moment would not be determined by the seed
        try:
            self.simulator.after(1.0, self._disturb)
            self.simulator.after(HEAL, self._heal)
            self.simulator.play(self.end)
            self.judge.at_rest()
        except Violation as found:
            violation, invariant = str(found), found.invariant
        except Exception as unexpected:  # a process ended with an unexpected error
            violation, invariant = repr(unexpected), CRASH
        finally:
            for machine in self.judge.machines.values():
                if machine.alive:
                    machine.crash()
            gc.enable()
        trace = self.simulator.trace or []
        overlaps = len(self.judge.overlaps)
        counts = self.judge.grants, self.simulator.steps
        return Outcome(self.seed, violation, *counts, trace, overlaps, invariant)
