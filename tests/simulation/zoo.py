"""Stories on ZooKeeper: the production text of the queue on the model of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.judge import BeliefsJudge, Violation
from tests.simulation.story import HEAL, Story
from tests.simulation.zoo_ensemble import HALF, Ensemble, Troubles

from leaselock.backends.zookeeper.model import Model
from leaselock.backends.zookeeper.queue import Queue
from leaselock.backends.zookeeper.single import Single
from leaselock.backends.zookeeper.turn import KAZOO

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Faults, Machine
    from tests.simulation.zoo_servers import Server

    from leaselock.backends.zookeeper.holds import Holds

SESSION = 4.0
ROOT = "/locks"
# Of an ensemble: how many servers, how late its followers are, and how likely a flight loses its
# connection; how often something happens to it, how long that lasts, and an election.
SIZES = (3, 3, 5)
LAGS = (0.001, 0.05, 0.5)
LOSSES = (0.0, 0.02, 0.1)
UNREST = (0.1, 0.5)
AWAY, ELECTION = 5.0, 1.0


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


class EnsembleJudge(ZooJudge):
    """Of several servers."""

    def at_rest(self) -> None:
        """They agree, too."""
        super().at_rest()
        ensemble: Any = self.model
        if any(server.tree.nodes != ensemble.tree.nodes for server in ensemble.servers):
            raise Violation("a server has other nodes than were agreed on")


class EnsembleStory(ZooStory):
    """Several servers: followers are late, are parted from the leader, and stop; leaders change."""

    model: Ensemble
    unrest = 0.0

    def make_model(self) -> Ensemble:
        """Most have three servers."""
        world, size = self.world, self.world.chance.choice(SIZES)
        return Ensemble(lambda: world.time, world.after, self._runs, SESSION, world.chance, size)

    def make_judge(self) -> EnsembleJudge:
        """Of several servers."""
        return EnsembleJudge(self.world, self.model, self.calm, max(self.leases))  # type: ignore[arg-type]

    def _faults(self) -> Faults:
        # Here, what is lost is lost with its connection.
        chance = self.world.chance
        self.model.troubles = Troubles(chance.choice(LAGS), chance.choice(LOSSES))
        self.unrest = chance.choice(UNREST)
        return super()._faults()._replace(lost_request=0.0, lost_reply=0.0)

    def _disturb(self) -> None:
        super()._disturb()
        chance = self.world.chance
        if self.world.time < HEAL and chance.random() < self.unrest:
            chance.choice((self._disconnect, self._elect, self._stop, self._part, self._part))()

    def _disconnect(self) -> None:
        chance, model = self.world.chance, self.model
        if model.links:
            chance.choice((model.cut, model.silence))(chance.choice(list(model.links)))

    def _elect(self) -> None:
        self.model.elect(self.world.chance.expovariate(1 / ELECTION))

    def _stop(self) -> None:
        """Some server ends, and comes back."""
        server = self.world.chance.choice(self.model.servers)
        if self._can_miss(server):
            self.model.stop(server, self.world.chance.expovariate(1 / ELECTION))
            self._later(lambda: self.model.start(server))

    def _part(self) -> None:
        """The leader and a follower do not hear each other for a while."""
        chance, model = self.world.chance, self.model
        server = chance.choice(model.servers)
        if self._can_miss(server) and server is not model.leader:
            server.parted = True
            forsaking = chance.random() < HALF
            self._later(lambda: model.rejoin(server, forsaking))

    def _can_miss(self, server: Server) -> bool:
        """Whether the others are a majority without it."""
        servers = self.model.servers
        able = sum(one.up and not one.parted for one in servers)
        return server.up and not server.parted and able - 1 > len(servers) / 2

    def _later(self, action: Callable[[], None]) -> None:
        self.world.after(self.world.chance.expovariate(1 / AWAY), action)

    def _heal(self) -> None:
        super()._heal()
        self.model.troubles = Troubles()


class EnsembleSingleStory(EnsembleStory):
    """One node for each lock, on several servers."""

    make_backend = SingleStory.make_backend
