"""Stories in which `cancel` ends single waits while others of the same client go on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verification.simulation.judge import Violation
from verification.simulation.local_handoff import HandoffStory
from verification.simulation.redis import RedisStory
from verification.simulation.redlock import RedlockStory
from verification.simulation.sql import SessionsStory, SqlStory
from verification.simulation.story import HEAL, Story
from verification.simulation.user import User
from verification.simulation.zoo import ZooStory

from leaselock.errors import AcquireCancelled

if TYPE_CHECKING:
    from verification.simulation.story import Outcome
    from verification.simulation.world import Machine, Run

    from leaselock._core.client_core import ClientCore
    from leaselock._core.mutex import Mutex

# Seconds: the mean time between two cancellations, and within which a cancelled wait ends where
# nothing fails.
BETWEEN, SOON = 1.0, 0.5
# How many steps a process may take in a second. Usual are some dozens.
MOST_STEPS = 200


class Cancelled(User):
    """A user whose waits may be cancelled."""

    story: CancelledWaits

    def _mutex(self) -> Mutex:
        mutex = super()._mutex()
        self.story.mutexes.setdefault(self.machine, []).append(mutex)
        return mutex

    async def _once(self) -> None:
        try:
            await super()._once()
        except AcquireCancelled:
            if not self.story.cancelled:
                raise Violation("answer", "a wait was cancelled by nobody") from None


class CancelledWaits(Story):
    """The story of a store, with more users of each client."""

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
        """Play the story."""
        self.world.after(1.0, self._cancel_one)
        self.world.after(1.0, self._count_steps)
        return super().run()

    def _cancel_one(self) -> None:
        world = self.world
        if world.time >= HEAL:
            return
        world.after(world.chance.expovariate(1.0 / BETWEEN), self._cancel_one)
        waiting = [
            (machine, mutex)
            for machine, mutexes in self.mutexes.items()
            if machine.alive and machine.frozen_until <= world.time
            for mutex in mutexes
            if mutex.waiting
        ]
        if not waiting:
            return
        machine, mutex = world.chance.choice(waiting)
        waits = set(mutex.waiting)
        count = mutex.cancel()
        self.cancelled += count
        world.moves += 1
        world.note(machine, f"cancels {count} waits for {mutex.name}")

        def ended() -> None:
            if machine.alive and waits & mutex.waiting:
                raise Violation("answer", f"a cancelled wait of {machine.name} goes on")

        if self.calm:
            world.after(SOON, ended)

    def _count_steps(self) -> None:
        """No process asks again and again."""
        self.world.after(1.0, self._count_steps)
        before, self.turns = self.turns, {}
        for machine in self.judge.machines.values():
            for run in machine.runs:
                self.turns[run] = run.turn
                if run.turn - before.get(run, 0) > MOST_STEPS:
                    raise Violation("spin", f"{machine.name} {run.name} asks again and again")


class CancelledRedis(CancelledWaits, RedisStory):
    """On Redis."""


class CancelledRedlock(CancelledWaits, RedlockStory):
    """On several masters."""


class CancelledZoo(CancelledWaits, ZooStory):
    """On ZooKeeper."""


class CancelledSql(CancelledWaits, SqlStory):
    """On PostgreSQL, by leases."""


class CancelledSessions(CancelledWaits, SessionsStory):
    """On PostgreSQL, by sessions."""


class CancelledHandoff(CancelledWaits, HandoffStory):
    """With local hand-off."""

    users = HandoffStory.users
