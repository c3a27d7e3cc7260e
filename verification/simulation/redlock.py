"""Scenarios on Redlock: the production text on three or five models of Redis with their own clocks.

At any time only a minority of the masters has faults. `MajorityLossScenario` shows the faults that
Redlock does not survive.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from verification.models.redis_server import Server
from verification.simulation.judge import ValidityJudge, Violation
from verification.simulation.redis import AWAY, BACK, BUSY, DRIFT, ONE
from verification.simulation.redis_judge import read
from verification.simulation.redis_net import Connections, Network
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.simulator import EPOCH

from leaselock._backends.redis.backend import CAPABILITIES
from leaselock._backends.redis.keys import keys_of
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.scripted_backend import VOTE
from leaselock._backends.redis.store import RedisStore
from leaselock._backends.redlock.claim_votes import UNKNOWN
from leaselock._backends.redlock.master import Master
from leaselock._backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.simulator import Machine


# The interval of checks of the votes, and for how long a vote may have no owner: a request may be
# in flight for as long as its client waited, and so may the release.
LOOKS, STRAY = 2.0, 8.0


class SimulatedMaster:
    """A master: its server, its clock, and its address in the network."""

    def __init__(self, scenario: RedlockScenario, number: int) -> None:
        self.simulator = scenario.simulator
        self.node = f"master{number}"
        self.address = Address(self.node, 1)
        self.drift, self.offset = self.simulator.chance.uniform(-DRIFT, DRIFT), 0.0
        self.server = Server(self.micros)
        self.net = scenario.net
        self.net.listen(self.address, self.server)
        self.settings = ONE._replace(addresses=(self.address,))

    def micros(self) -> int:
        """The clock of the master, in microseconds."""
        return int((EPOCH + self.simulator.time * (1.0 + self.drift) + self.offset) * 1e6)

    def restart(self, lost: int = 0) -> None:
        """Stop the server, and start it later without the last changes."""
        host = self.net.hosts[self.address]
        if host.up:
            host.stop()
            known = len(self.server.changes) - lost
            self.simulator.after(
                self.simulator.chance.uniform(0.01, AWAY), partial(self._back, known)
            )

    def _back(self, known: int) -> None:
        self.server.restart(known)
        self.net.listen(self.address, self.server)

    def lose_data(self) -> None:
        """Stop the server, and start it later without its data."""
        self.restart(len(self.server.changes))
        self.server.restart(0)

    def voted_for(self, name: str) -> str:
        """The claim that has the vote of this master, if any."""
        keys = read(self.server, name)
        return keys.holder if keys.end >= self.micros() // 1000 else ""

    def lasts(self, name: str) -> float:
        """The remaining time of the vote in seconds."""
        return (read(self.server, name).end - self.micros() / 1000) / 1000 / (1.0 + self.drift)

    def counter(self, name: str) -> int:
        """The token of the last vote."""
        value: Any = self.server.data.values.get(keys_of(name).token.encode(), b"0")
        return int(value)

    def be_busy(self) -> None:
        """Delay the replies."""
        host = self.net.hosts[self.address]
        host.busy_until = self.simulator.time + self.simulator.chance.uniform(0.0, BUSY)

    def lose_scripts(self) -> None:
        """Remove the scripts."""
        self.server.scripts.clear()

    def jump(self, ahead: float = -1.0) -> None:
        """Set the clock back, so that leases last longer, or ahead."""
        self.offset += ahead * self.simulator.chance.uniform(0.0, BACK)

    def be_cut_off(self) -> None:
        """Cut all connections."""
        for link in list(self.net.hosts[self.address].links):
            link.cut()


class RedlockJudge(ValidityJudge):
    """Checks the validity of holds, the state at the end, and that each vote has an owner that
    will release it.
    """

    def __init__(self, scenario: RedlockScenario, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.scenario = scenario
        self.votes_at = 0.0
        # Votes without an owner, and since when.
        self.strays: dict[tuple[str, str, str], float] = {}

    def check(self) -> None:
        """After each step; the votes only at intervals, because that is slow."""
        super().check()
        now = self.simulator.time
        if now < self.votes_at:
            return
        self.votes_at = now + LOOKS
        strays = (
            (master.node, name, holder)
            for master in self.scenario.masters
            for name in self.scenario.names
            if (holder := master.voted_for(name)) and self._is_forgotten(holder)
        )
        self.strays = {stray: self.strays.get(stray, now) for stray in strays}
        for (node, name, holder), since in self.strays.items():
            if now - since > STRAY:
                raise Violation(
                    "left behind",
                    f"{node} keeps a vote on {name!r} for {holder}, which has no owner",
                )

    def _is_forgotten(self, holder: str) -> bool:
        """Return whether the client is alive and does not know the claim."""
        machine = self.machines[holder.partition(".")[0]]
        if not machine.alive or machine.frozen_until > self.simulator.time:
            return False
        registry = self.registry[machine.name]
        backend: Any = registry.backend
        known = backend.claims.get(holder, UNKNOWN)
        if known.votes is not None or known.queued_at is not None or known.uncertain:
            return False
        kept = (registry.table, *backend.pending_releases.requests.values())
        return not any(holder in each for each in kept)

    def at_rest(self) -> None:
        """All waiters were served. Votes were looked at all the time."""
        self.all_were_served()


class RedlockScenario(Scenario):
    """One seed."""

    def make_model(self) -> Any:
        """Make the network and the masters."""
        self.net = Network(self.simulator)
        count = self.simulator.chance.choice((3, 5))
        self.masters = [SimulatedMaster(self, number) for number in range(count)]
        if not self.calm and self.simulator.chance.random() < 0.7:
            self.simulator.after(2.0, self._trouble)
        return self.net

    def make_judge(self) -> RedlockJudge:
        """Make the judge of several masters."""
        return RedlockJudge(self, self.simulator, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Redlock:
        """Make the production backend."""
        shared = self.simulator.chance.choice((False, True))
        masters = [self._master(master, machine, shared) for master in self.masters]
        return Redlock(
            masters, CAPABILITIES._replace(notifies_changes=False), machine.now, machine.random
        )

    def _master(self, master: SimulatedMaster, machine: Machine, shared: bool) -> Master:
        connections = Connections(self.net, machine, shared)
        store = RedisStore(master.settings, machine.now, connections, machine.random)
        return Master(master.node, store.backend(VOTE))

    # --- faults ---------------------------------------------------------------------------------

    def troubles(self, master: SimulatedMaster) -> list[Callable[[], None]]:
        """The possible faults of a master."""
        return [master.restart, master.be_busy, master.lose_scripts, master.jump, master.be_cut_off]

    def troubled(self) -> int:
        """How many masters have faults at a time."""
        return len(self.masters) // 2

    def _trouble(self) -> None:
        simulator, chance = self.simulator, self.simulator.chance
        if simulator.time >= HEAL - AWAY:
            return
        for master in chance.sample(self.masters, self.troubled()):
            chance.choice(self.troubles(master))()
        simulator.after(AWAY + chance.expovariate(0.5), self._trouble)


class SurvivableLossScenario(RedlockScenario):
    """Masters lose their data, as far as Redlock survives it: a majority of the other masters must
    have the same token, and the same vote for at least as long.
    """

    def troubles(self, master: SimulatedMaster) -> list[Callable[[], None]]:
        """The loss of data has the greatest probability, where it is allowed."""
        if self._can_do_without(master):
            return [master.lose_data, master.lose_data, *super().troubles(master)]
        return super().troubles(master)

    def _can_do_without(self, master: SimulatedMaster) -> bool:
        return all(self._has_less(master, name) for name in self.names)

    def _has_less(self, master: SimulatedMaster, name: str) -> bool:
        mine, known, ends = master.voted_for(name), master.counter(name), master.lasts(name)
        others = [other for other in self.masters if other is not master]
        votes = sum(other.voted_for(name) == mine and other.lasts(name) >= ends for other in others)
        counters = sum(other.counter(name) >= known for other in others)
        return min(counters, votes if mine else counters) > len(self.masters) // 2


class MinorityLossScenario(SurvivableLossScenario):
    """A minority loses its data, without regard to the data of the others."""

    def _can_do_without(self, master: SimulatedMaster) -> bool:
        return True


class MajorityLossScenario(RedlockScenario):
    """A majority loses its data, or its clocks jump ahead, which Redlock does not survive."""

    def troubles(self, master: SimulatedMaster) -> list[Callable[[], None]]:
        """Faults that lose votes."""
        return [master.lose_data, partial(master.jump, 1.0)]

    def troubled(self) -> int:
        """A majority of the masters."""
        return len(self.masters) // 2 + 1
