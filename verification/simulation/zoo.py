"""Scenarios on ZooKeeper: the production text of both protocols on the model of an ensemble."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.models.zookeeper_model import Model
from verification.simulation.judge import ValidityJudge, Violation
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.zoo_connection import SimulatedConnection
from verification.simulation.zoo_ensemble import HALF, Ensemble, Troubles

from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.queue_order import KAZOO
from leaselock._backends.zookeeper.single import SingleBackend

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.simulator import Faults, Machine
    from verification.simulation.zoo_servers import Server

    from leaselock._backends.zookeeper.session_backend import SessionBackend

SESSION = 4.0
ROOT = "/locks"
# Parameters of an ensemble: the number of servers, the lag of followers, and the probability that a
# batch loses its connection; the probability of a fault per second, its mean duration, and that of
# an election.
SIZES = (3, 3, 5)
LAGS = (0.001, 0.05, 0.5)
LOSSES = (0.0, 0.02, 0.1)
UNREST = (0.1, 0.5)
AWAY, ELECTION = 5.0, 1.0


class ZooJudge(ValidityJudge):
    """Checks only validity and the state at the end: the order of the queue is given by the names
    of its nodes.
    """

    def at_rest(self) -> None:
        """Every claim was served, and no ephemeral node is left."""
        self.all_were_served()
        tree: Any = self.model.tree  # type: ignore[attr-defined]
        left = [node.path for node in tree.nodes.values() if node.session]
        if left:
            raise Violation("left behind", f"nodes without a claim are left: {left}")


class ZooScenario(Scenario):
    """The protocol "queue" on one server."""

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.connections: dict[str, SimulatedConnection] = {}
        super().__init__(seed, traced)

    def make_model(self) -> Any:
        """One server."""
        simulator = self.simulator
        return Model(lambda: simulator.time, simulator.after, self._runs, SESSION)

    def _runs(self, name: str) -> bool:
        machine = self.judge.machines[name]
        return machine.alive and machine.frozen_until <= self.simulator.time

    def make_judge(self) -> ZooJudge:
        """The judge of one server."""
        return ZooJudge(self.simulator, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> SessionBackend:
        """The protocol "queue"."""
        return QueueBackend(self.connection_of(machine), ROOT, KAZOO, machine.now)

    def connection_of(self, machine: Machine) -> Any:
        """The machine's connection."""
        if machine.name not in self.connections:
            self.connections[machine.name] = SimulatedConnection(self.model, machine)
        return self.connections[machine.name]

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """A child process has a connection of its own."""
        return {id(self.connection_of(parent)): self.connection_of(child)}

    def _faults(self) -> Faults:
        # A watch event is lost only with its connection, and then every claim asks again.
        return super()._faults()._replace(lost_message=0.0)


class SingleScenario(ZooScenario):
    """The protocol "single" on one server."""

    def make_backend(self, machine: Machine) -> SingleBackend:
        """The protocol "single"."""
        return SingleBackend(self.connection_of(machine), ROOT, machine.now)


class EnsembleJudge(ZooJudge):
    """The judge of several servers."""

    def at_rest(self) -> None:
        """All servers have the same nodes, too."""
        super().at_rest()
        ensemble: Any = self.model
        if any(server.tree.nodes != ensemble.tree.nodes for server in ensemble.servers):
            raise AssertionError("a server has other nodes than the committed ones")


class EnsembleScenario(ZooScenario):
    """The protocol "queue" on several servers: followers lag, are partitioned from the leader, and
    stop; the leader changes.
    """

    model: Ensemble
    unrest = 0.0

    def make_model(self) -> Ensemble:
        """Three servers, sometimes five."""
        simulator, size = self.simulator, self.simulator.chance.choice(SIZES)
        return Ensemble(
            lambda: simulator.time, simulator.after, self._runs, SESSION, simulator.chance, size
        )

    def make_judge(self) -> EnsembleJudge:
        """The judge of several servers."""
        return EnsembleJudge(self.simulator, self.model, self.calm, max(self.leases))  # type: ignore[arg-type]

    def _faults(self) -> Faults:
        # Requests and replies are lost with their connection, by the model of the ensemble.
        chance = self.simulator.chance
        self.model.troubles = Troubles(chance.choice(LAGS), chance.choice(LOSSES))
        self.unrest = chance.choice(UNREST)
        return super()._faults()._replace(lost_request=0.0, lost_reply=0.0)

    def _disturb(self) -> None:
        super()._disturb()
        chance = self.simulator.chance
        if self.simulator.time < HEAL and chance.random() < self.unrest:
            chance.choice((self._disconnect, self._elect, self._stop, self._part, self._part))()

    def _disconnect(self) -> None:
        chance, model = self.simulator.chance, self.model
        if model.links:
            chance.choice((model.cut, model.silence))(chance.choice(list(model.links)))

    def _elect(self) -> None:
        self.model.elect(self.simulator.chance.expovariate(1 / ELECTION))

    def _stop(self) -> None:
        """A server stops, and starts again."""
        server = self.simulator.chance.choice(self.model.servers)
        if self._can_miss(server):
            self.model.stop(server, self.simulator.chance.expovariate(1 / ELECTION))
            self._later(lambda: self.model.start(server))

    def _part(self) -> None:
        """The leader and a follower are partitioned for a while."""
        chance, model = self.simulator.chance, self.model
        server = chance.choice(model.servers)
        if self._can_miss(server) and server is not model.leader:
            server.partitioned = True
            dropping = chance.random() < HALF
            self._later(lambda: model.rejoin(server, dropping))

    def _can_miss(self, server: Server) -> bool:
        """Whether the other servers are a majority without it."""
        servers = self.model.servers
        able = sum(one.up and not one.partitioned for one in servers)
        return server.up and not server.partitioned and able - 1 > len(servers) / 2

    def _later(self, action: Callable[[], None]) -> None:
        self.simulator.after(self.simulator.chance.expovariate(1 / AWAY), action)

    def _heal(self) -> None:
        super()._heal()
        self.model.troubles = Troubles()


class EnsembleSingleScenario(EnsembleScenario):
    """The protocol "single" on several servers."""

    make_backend = SingleScenario.make_backend
