"""A story: a few machines that contend for a few locks, and what may go wrong for them.

The seed decides everything: how many they are, what they do, which faults there are and how
strong. Faults stop at `HEAL`; by `END` everything must have come to rest.
"""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.simulation.judge import EXTENSION, Judge, Violation

from holdfast.backends.sqlite.model import Model
from holdfast.backends.sqlite.nodes import CAPABILITIES
from holdfast.core.effects import Sleep
from holdfast.core.queue import Queue
from holdfast.core.service import Service
from holdfast.drivers.simulated import World
from holdfast.drivers.simulated_machine import EPOCH, Faults, Interrupted, Machine
from holdfast.errors import LeaseLost, NotHeld, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.core.handle import Handle
    from holdfast.core.mutex import Mutex

HEAL = 30.0
END = 150.0
PATIENCE = 2.0
LEASES = ((1.0, 2.0, 4.0), (1.0, 2.0, 4.0), (20.0,))
CALM = 4
# How many locks a user takes. Short stories cost half as much and find most of the planted bugs in
# the same time as long ones; a few bugs need many meetings.
LONG, SHORT = (3, 6, 10), (1, 2, 4)
LONG_ONES, EACH = 20_000, 10


def is_long(seed: int) -> bool:
    """The first seeds are long stories, and of all others each tenth."""
    return seed < LONG_ONES or seed % EACH == 0


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

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.seed = seed
        self.world = World(seed, {}, Faults())
        chance = self.world.chance
        self.calm = chance.randrange(CALM) == 0
        self.model = self.make_model()
        self.world.models = {"store": self.model, "ear": self.model}
        self.world.trace = [] if traced else None
        self.leases = chance.choice(LEASES)
        self.judge = self.make_judge()
        self.world.check = self.judge.check
        self.crashes = not self.calm and chance.random() < 0.5
        self.cancels = chance.random() < 0.4
        self.breaks = not self.calm and chance.random() < 0.2
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
        return Queue(CAPABILITIES)

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
        service = Service(machine, lambda protocol: backend, label=None, op_timeout=PATIENCE)
        self.judge.enrol(machine, service)
        for number in range(self.world.chance.choice((1, 1, 2))):
            machine.start(User(self, machine, service).live(), f"user{number}")

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

    async def _break(self, service: Service) -> None:
        try:
            name = self.world.chance.choice(self.names)
            self.judge.breaking = True
            await service.evict(name, None)
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


class User:
    """One thread or task of a machine, which takes locks and gives them back."""

    def __init__(self, story: Story, machine: Machine, service: Service) -> None:
        self.story = story
        self.chance = story.world.chance
        self.machine = machine
        self.service = service
        self.rounds = self.chance.choice(LONG if is_long(story.seed) else SHORT)

    async def live(self) -> None:
        """Take a lock, work, give it back; several times."""
        for _ in range(self.rounds):
            await self._pause(0.3)
            try:
                await self._once()
            except StoreError:
                if self.story.calm:
                    raise Violation("the store answered every question, yet one failed") from None

    async def _pause(self, mean: float) -> None:
        await Sleep(self.machine.now() + self.chance.expovariate(1.0 / mean))

    def _mutex(self) -> Mutex:
        return self.service.mutex(
            self.chance.choice(self.story.names),
            lease=self.chance.choice(self.story.leases),
            renew=self.chance.random() < 0.8,
            timeout=None,
            reentrant=True,
            protocol=None,
            label=None,
        )

    async def _once(self) -> None:
        mutex = self._mutex()
        timeout = self.chance.choice((None, None, None, 0.0, 0.05, 1.0, 10.0))
        asked = self.machine.now()
        handle = await mutex.acquire(timeout)
        if handle is None:
            self._refused(timeout, self.machine.now() - asked)
            return
        try:
            await self._work(mutex, handle)
        except GeneratorExit:
            raise  # the machine has crashed: nothing can be awaited any more
        except BaseException:
            await self._release(handle)
            raise
        await self._release(handle)

    def _refused(self, timeout: float | None, waited: float) -> None:
        if timeout is None:
            raise Violation("a wait without end ended without the lock")
        if self.story.calm and not timeout <= waited <= timeout + 0.2:
            raise Violation(f"a wait of {timeout} s ended after {waited:.3f} s")

    async def _work(self, mutex: Mutex, handle: Handle) -> None:
        for _ in range(self.chance.choice((1, 2, 4))):
            await self._pause(self.chance.choice(self.story.works))
            if handle.lost():
                return
            if self.chance.random() < 0.2:
                await self._nest(mutex, handle)
            if self.chance.random() < 0.05 and not handle.lost():
                await self._tolerant(lambda: handle.extend(EXTENSION))

    async def _nest(self, mutex: Mutex, handle: Handle) -> None:
        before = handle.hold.depth
        try:
            inner = await mutex.acquire(0.0)
        except LeaseLost:
            return
        if inner is None or inner.hold is not handle.hold:
            raise Violation("a nested acquire did not find the hold it is nested in")
        try:
            await self._pause(0.05)
        except Interrupted:
            await self._release(inner)
            raise
        await self._release(inner)
        if handle.hold.depth != before:
            raise Violation("the depth does not agree with the releases")

    async def _tolerant(self, action: Callable[[], object]) -> None:
        try:
            await action()  # type: ignore[misc]
        except (LeaseLost, StoreError):
            return

    async def _release(self, handle: Handle) -> None:
        if handle.released:
            return
        hold = handle.hold
        believed = hold.believed(self.machine.now())
        try:
            await handle.release()
        except (LeaseLost, StoreError):
            if believed and self.story.calm and hold.renew:
                raise Violation(f"{hold.claim.name} was lost without a fault") from None
