"""A story: a few machines that contend for a few locks, and what may go wrong for them.

The seed decides everything: how many they are, what they do, which faults there are and how
strong. Faults stop at `HEAL`; by `END` everything must have come to rest.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.models.sqlite_model import Model
from tests.simulation.forks import forked
from tests.simulation.judge import Judge, Violation
from tests.simulation.user import User
from tests.simulation.world import EPOCH, Faults, Machine, World

from leaselock.backends.sqlite.store import CAPABILITIES
from leaselock.core.client_core import ClientCore
from leaselock.core.queue import Queue
from leaselock.errors import NotHeld, StoreError

if TYPE_CHECKING:
    from leaselock.core.lease_handle import LeaseHandle
    from leaselock.core.mutex import Mutex

HEAL = 30.0
END = 150.0
PATIENCE = 2.0
LEASES = ((1.0, 2.0, 4.0), (1.0, 2.0, 4.0), (20.0,))
CALM = 4
# How many locks a user takes. Short stories cost half as much and find most of the planted bugs in
# the same time as long ones; a few bugs need many meetings.
LONG, SHORT = (3, 6, 10), (1, 2, 4)
LONG_ONES, EACH = 20_000, 10
# In some of the others processes fork, this often while they hold, and no more often in all.
FORKING, FORK, MOST_CHILDREN = 5, 0.15, 2


def is_long(seed: int) -> bool:
    """The first seeds are long stories, and of all others each tenth."""
    return seed < LONG_ONES or seed % EACH == 0


def has_forks(seed: int) -> bool:
    """The first seeds have none: those of them that once failed are as they were then."""
    return seed >= LONG_ONES and seed % FORKING == 1


class Outcome(NamedTuple):
    """What came of a seed."""

    seed: int
    violation: str | None
    grants: int
    steps: int
    trace: list[str]
    overlaps: int = 0


class Story:
    """One seed."""

    # How long those who hold work, on the average.
    works: tuple[float, ...] = (0.01, 0.3, 1.5)
    end = END
    # How many threads or tasks a machine has, and how often they pass a lease among themselves.
    users: tuple[int, ...] = (1, 1, 2)
    local_handoffs = 0
    cached = False

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, {}, Faults())
        chance = self.world.chance
        self.calm = chance.randrange(CALM) == 0
        self.model = self.make_model()
        self.world.models = {"store": self.model, "ear": self.model}
        self.world.trace = [] if traced else None
        self.leases = chance.choice(LEASES)
        self.rounds = LONG if is_long(seed) else SHORT
        self.judge = self.make_judge()
        self.world.check = self.judge.check
        self.crashes = not self.calm and chance.random() < 0.5
        self.cancels = chance.random() < 0.4
        self.breaks = not self.calm and chance.random() < 0.2
        self.children_left = MOST_CHILDREN if has_forks(seed) else 0
        self.names = ["a", "b"][: chance.choice((1, 1, 2))]
        for number in range(chance.choice((2, 3, 4))):
            self._machine(f"m{number}")
        if not self.calm:
            self.world.faults = self._faults()

    def make_model(self) -> Any:
        """The store of this story."""
        return Model(lambda: self.world.time, self._micros)

    def make_judge(self) -> Judge:
        """Who looks at its steps."""
        return Judge(self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Any:
        """How its machines lock."""
        return Queue(CAPABILITIES, "store", "ear")

    def _micros(self) -> int:
        return int((EPOCH + self.world.time) * 1e6)

    def _faults(self) -> Faults:
        # A random part of the faults, each with a random strength: a seed with all of them at
        # full strength finds less, since nothing goes on for long.
        chance = self.world.chance

        def some(strength: float) -> float:
            return chance.random() * strength if chance.random() < 0.5 else 0.0

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
        machine = Machine(self.world, name)
        backend = self.make_backend(machine)
        service = ClientCore(machine, lambda protocol: backend, label=None, op_timeout=PATIENCE)
        self.judge.enrol(machine, service)
        for number in range(self.world.chance.choice(self.users)):
            machine.start(User(self, machine, service).live(), f"user{number}")

    def perhaps_fork(
        self, parent: Machine, service: ClientCore, mutex: Mutex, handle: LeaseHandle
    ) -> None:
        """A process forks while it holds; the child goes on with a copy of everything."""
        if not self.children_left or self.world.chance.random() >= FORK:
            return
        child = Machine(self.world, f"{parent.name}fork{self.children_left}")
        self.children_left -= 1
        self.world.note(parent, f"forks {child.name}")
        instead = {id(parent): child, **self.nodes_of(parent, child)}
        copies = forked(child, instead, service, mutex, handle)
        self.judge.enrol(child, copies.service)
        child.start(User(self, child, copies.service).live_on(copies), "user0")

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """What a child has instead of a node of its parent, by the id of that."""
        return {}

    def _disturb(self) -> None:
        """Once in a while: a crash, a cancellation, a lock broken by an operator."""
        world, chance = self.world, self.world.chance
        if world.time >= HEAL:
            return
        world.after(chance.expovariate(1.0), self._disturb)
        alive = [m for m in self.judge.machines.values() if m.alive]
        machine = chance.choice(alive) if alive else None
        if machine is None:
            return
        if self.crashes and chance.random() < 0.1:
            world.note(machine, "crashes")
            machine.crash()
        elif self.cancels and chance.random() < 0.3:
            self._cancel(machine)
        elif self.breaks and chance.random() < 0.1:
            machine.start(self._break(self.judge.services[machine.name]), "operator")

    def _cancel(self, machine: Machine) -> None:
        users = sorted((r.name, r) for r in machine.runs if r.name.startswith("user"))
        if users:
            name, run = self.world.chance.choice(users)
            self.world.note(machine, f"{name} is cancelled")
            self.world.interrupt(run)

    async def _break(self, service: ClientCore) -> None:
        try:
            name = self.world.chance.choice(self.names)
            self.judge.breaking = True
            await service.break_lock(name, None)
        except (StoreError, NotHeld):
            return

    def _heal(self) -> None:
        self.world.faults = Faults()
        for machine in self.judge.machines.values():
            machine.frozen_until = min(machine.frozen_until, self.world.time)

    def tell(self) -> Outcome:
        """Play the story, and say what came of it."""
        violation = None
        gc.disable()  # a collection at a random moment would be chance that no seed decides
        try:
            self.world.after(1.0, self._disturb)
            self.world.after(HEAL, self._heal)
            self.world.play(self.end)
            self.judge.at_rest()
        except Violation as found:
            violation = str(found)
        except Exception as unexpected:  # the end of a process in a way that nobody planned
            violation = repr(unexpected)
        finally:
            for machine in self.judge.machines.values():
                if machine.alive:
                    machine.crash()
            gc.enable()
        trace = self.world.trace or []
        overlaps = len(self.judge.overlaps)
        return Outcome(self.seed, violation, self.judge.grants, self.world.steps, trace, overlaps)
