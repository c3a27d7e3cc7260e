"""Stories on Redlock: the production text on models of three or five masters, each with a clock
of its own, of which a minority may be away.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.judge import Judge, Violation
from tests.simulation.story import HEAL, Story

from holdfast.backends.redis.nodes import CAPABILITIES
from holdfast.backends.redlock.masters import Master
from holdfast.backends.redlock.model import Model
from holdfast.backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from holdfast.core.lease import Hold
    from holdfast.drivers.simulated_machine import Machine

DRIFT = 0.0005
AWAY = 3.0


class RedlockJudge(Judge):
    """What a majority has, it has by their votes; so only beliefs and ends are judged."""

    masters: Sequence[Model] = ()

    def check(self) -> None:
        """After each step: no two believe, and tokens rise."""
        self.check_time()
        self.believers()

    def _check_order(self, hold: Hold) -> None:
        """The line is a courtesy."""

    def at_rest(self) -> None:
        """Everybody was served, and nobody has a vote."""
        self.all_were_served()
        for number, master in enumerate(self.masters):
            for name, entry in master.table.entries.items():
                held = entry.held
                if held is None or held.expires <= master.now():
                    continue
                # A question that a dead client had sent may have arrived a while ago.
                if self.machines[held.client.partition(".")[0]].alive:
                    raise Violation(f"master {number} has a vote on {name!r} for nobody")


class RedlockStory(Story):
    """One seed."""

    def make_model(self) -> Any:
        """The first of the masters; the story knows all of them."""
        chance = self.world.chance
        count = chance.choice((3, 5))
        self.masters = [self._master(chance.uniform(-DRIFT, DRIFT)) for _ in range(count)]
        self.forgets = False
        self.away = not self.calm and chance.random() < 0.7
        return self.masters[0]

    def _master(self, drift: float) -> Model:
        return Model(lambda: self.world.time * (1.0 + drift))

    def make_judge(self) -> RedlockJudge:
        """Of several masters; here they get their names."""
        self.world.models = {f"master{i}": model for i, model in enumerate(self.masters)}
        judge = RedlockJudge(self.world, self.model, self.calm, max(self.leases))
        judge.masters = self.masters
        if self.away:
            self.world.after(2.0, self._trouble)
        return judge

    def make_backend(self, machine: Machine) -> Redlock:
        """The production text."""
        masters = [
            Master(f"master{i}", f"master {i}", _nothing, _never) for i in range(len(self.masters))
        ]
        return Redlock(masters, CAPABILITIES, machine.now, machine.random)

    def _trouble(self) -> None:
        """A minority of the masters is away for a while."""
        world, chance = self.world, self.world.chance
        if world.time >= HEAL - AWAY:
            return
        gone = chance.sample(self.masters, len(self.masters) // 2)
        for model in gone:
            model.away = True
            world.after(chance.uniform(0.1, AWAY), partial(self._back, model))
        world.after(AWAY + chance.expovariate(0.5), self._trouble)

    def _back(self, model: Model) -> None:
        model.away = False
        if self.forgets:
            model.begin()


class ForgetfulStory(RedlockStory):
    """Masters that come back without their data: what a Redlock does not survive."""

    def make_model(self) -> Any:
        """All of them forget."""
        model = super().make_model()
        self.forgets = self.away = True
        return model


def _nothing(holder: str) -> None:
    """A model keeps nothing of who waits."""


def _never() -> None:
    """No client is closed in a story."""
