"""Scenarios with readers, writers, updates and permits on ZooKeeper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.simulation.judge import Violation
from verification.simulation.modes import (
    LIMIT,
    LIMITS,
    SEMAPHORE,
    ManyHolds,
    ModesPlay,
    PersistentUser,
)
from verification.simulation.zoo import ROOT, EnsembleJudge, EnsembleScenario, ZooJudge, ZooScenario

from leaselock._backends.zookeeper.data import read
from leaselock._backends.zookeeper.paths import QUEUE, owner_of, path_of
from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.queue_order import KAZOO, entry
from leaselock._backends.zookeeper.semaphores import limit_of
from leaselock._core.contract.backend import Busy

if TYPE_CHECKING:
    from verification.simulation.simulator import Machine

    from leaselock._core.contract.backend import Claim, Grant

PATH = path_of(ROOT, SEMAPHORE)


class ManyNodes(ManyHolds):
    """Checks what the clients count on, and that a try is refused only what is not free."""

    def begin(self) -> None:
        """Start with nothing seen."""
        super().begin()
        self.seen_changes = self.held = 0
        # The permits that each owner held or was queued for, and since when.
        self.wanted: list[tuple[float, dict[str, int]]] = [(0.0, {})]

    def check(self) -> None:
        """After each step."""
        super().check()
        tree: Any = self.model.tree  # type: ignore[attr-defined]
        if tree.zxid == self.seen_changes:
            return
        self.wanted.append((self.simulator.time, self._wanted(tree)))
        held, self.held = self.held, len(tree.below.get(PATH, ()))
        # Several changes at once may be a grant and then a smaller number.
        if held < self.held and tree.zxid == self.seen_changes + 1:
            limit = limit_of(tree.nodes[PATH])
            if self.held > limit:
                raise Violation("exclusion", f"{self.held} of {limit} permits are held")
        self.seen_changes = tree.zxid

    def _wanted(self, tree: Any) -> dict[str, int]:
        wanted: dict[str, int] = {}
        for name in tree.below.get(PATH, ()):
            owner = name.rpartition(".")[0]
            wanted[owner] = wanted.get(owner, 0) + 1
        for name in tree.below.get(PATH + QUEUE, ()):
            found, node = entry(name), tree.nodes[f"{PATH}{QUEUE}/{name}"]
            assert found is not None
            wanted[found.owner] = read(node.data, node.created).permits
        return wanted

    def refused(self, claim: Claim, asked: float) -> None:
        """A try was refused. At some time since it *asked*, there were too few permits for it and
        for all that held or waited.
        """
        if self.most != LIMIT:
            return  # the number of permits may have been smaller
        since = max(time for time, _ in self.wanted if time <= asked)
        own = owner_of(claim.id)
        for time, wanted in self.wanted:
            others = [n for o, n in wanted.items() if not f"{o}.".startswith(f"{own}.")]
            if time >= since and sum(others) + claim.permits > LIMIT:
                return
        raise Violation(
            "answer", f"{claim.id} was refused {claim.permits} permits, which were free"
        )


class JudgedBackend(QueueBackend):
    """Reports refused tries to the judge."""

    def __init__(self, judge: ManyNodes, machine: Machine, connection: Any) -> None:
        super().__init__(connection, ROOT, KAZOO, machine.now)
        self.judge = judge
        self.machine = machine

    async def acquire(self, claim: Claim, *, wait: bool, until: float) -> Grant | Busy:
        """Acquire the lock, or take a place in the queue."""
        asked = self.machine.simulator.time
        reply = await super().acquire(claim, wait=wait, until=until)
        if isinstance(reply, Busy) and claim.mode == "permits" and not wait:
            self.judge.refused(claim, asked)
        return reply


class ZooModesJudge(ManyNodes, ZooJudge):
    """Checks the nodes of one server."""


class EnsembleModesJudge(ManyNodes, EnsembleJudge):
    """The same with several servers."""


class ZooModesPlay(ModesPlay, ZooScenario):
    """In some scenarios an operator changes the number of permits."""

    judge: ManyNodes

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.resizes = SEMAPHORE in self.names and self.simulator.chance.random() < self.resized
        if self.resizes:
            self.judge.most = max(LIMITS)

    def make_backend(self, machine: Machine) -> JudgedBackend:
        """The protocol "queue"."""
        return JudgedBackend(self.judge, machine, self.connection_of(machine))

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """A child process has the same judge."""
        return super().nodes_of(parent, child) | {id(self.judge): self.judge}


class ZooModesScenario(ZooModesPlay):
    """On one server."""

    def make_judge(self) -> ZooModesJudge:
        """The judge of one server."""
        judge = ZooModesJudge(self.simulator, self.model, self.calm, max(self.leases))
        judge.begin()
        return judge


class EnsembleModesScenario(ZooModesPlay, EnsembleScenario):
    """On several servers."""

    def make_judge(self) -> EnsembleModesJudge:
        """The judge of several servers."""
        judge = EnsembleModesJudge(self.simulator, self.model, self.calm, max(self.leases))  # type: ignore[arg-type]
        judge.begin()
        return judge


class PersistentZooScenario(ZooModesScenario):
    """Conversions that follow an interrupted one."""

    user = PersistentUser
    lock_modes = ("shared", "update", "update")
    kinds = (["a"],)


class NumberedZooScenario(ZooModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)


class NumberedEnsembleScenario(EnsembleModesScenario):
    """Permits that have numbers."""

    numbered = True
    kinds = ([SEMAPHORE],)
