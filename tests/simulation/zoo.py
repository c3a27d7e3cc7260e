"""Stories on ZooKeeper: the production text of the queue on the model of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import BeliefsJudge, Violation
from tests.simulation.story import Story

from holdfast.backends.zookeeper.model import Model
from holdfast.backends.zookeeper.queue import Queue
from holdfast.backends.zookeeper.single import Single
from holdfast.backends.zookeeper.turn import KAZOO

if TYPE_CHECKING:
    from holdfast.backends.zookeeper.holds import Holds
    from holdfast.drivers.simulated_machine import Faults, Machine

SESSION = 4.0
ROOT = "/locks"


class ZooJudge(BeliefsJudge):
    """What a queue of nodes has, it has by their names; so only beliefs and ends are judged."""

    def at_rest(self) -> None:
        """Everybody was served, and no node is left."""
        self.all_were_served()
        tree: Any = self.model.tree  # type: ignore[attr-defined]
        left = [node.path for node in tree.nodes.values() if node.session]
        if left:
            raise Violation(f"nobody wants {left}")


class ZooStory(Story):
    """One seed."""

    def make_model(self) -> Any:
        """An ensemble."""
        world = self.world
        return Model(lambda: world.time, world.after, self._runs, SESSION)

    def _runs(self, name: str) -> bool:
        machine = self.judge.machines[name]
        return machine.alive and machine.frozen_until <= self.world.time

    def make_judge(self) -> ZooJudge:
        """Of an ensemble."""
        return ZooJudge(self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Holds:
        """The queue."""
        return Queue(ROOT, SESSION, KAZOO, machine.now)

    def _faults(self) -> Faults:
        # A watch that is not delivered is a connection that is lost, and then all look again.
        return super()._faults()._replace(lost_message=0.0)


class SingleStory(ZooStory):
    """One node for each lock, as older programs have it."""

    def make_backend(self, machine: Machine) -> Single:
        """Whoever makes it, holds."""
        return Single(ROOT, SESSION, machine.now)
