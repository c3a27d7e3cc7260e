"""Stories with readers, writers, updates and permits on ZooKeeper."""

from __future__ import annotations

from tests.simulation.modes import LIMITS, SEMAPHORE, ManyHolds, ModesPlay, PersistentUser
from tests.simulation.zoo import EnsembleJudge, EnsembleStory, ZooJudge, ZooStory


class ZooModesJudge(ManyHolds, ZooJudge):
    """Checks what the clients count on."""


class EnsembleModesJudge(ManyHolds, EnsembleJudge):
    """The same with several servers."""


class ZooModesPlay(ModesPlay):
    """In some stories an operator changes the number of permits."""

    judge: ManyHolds

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.resizes = SEMAPHORE in self.names and self.world.chance.random() < 0.3
        if self.resizes:
            self.judge.most = max(LIMITS)


class ZooModesStory(ZooModesPlay, ZooStory):
    """On one server."""

    def make_judge(self) -> ZooModesJudge:
        """The judge of one server."""
        judge = ZooModesJudge(self.world, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class EnsembleModesStory(ZooModesPlay, EnsembleStory):
    """On several servers."""

    def make_judge(self) -> EnsembleModesJudge:
        """The judge of several servers."""
        judge = EnsembleModesJudge(self.world, self.model, self.calm, max(self.leases))  # type: ignore[arg-type]
        judge.begin()
        return judge


class PersistentZooStory(ZooModesStory):
    """Conversions that follow an interrupted one."""

    user = PersistentUser
    lock_modes = ("shared", "update", "update")
    kinds = (["a"],)
