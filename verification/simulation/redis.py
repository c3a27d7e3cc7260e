"""Scenarios on Redis: the production text, including its scripts, on a model of the server.

The clients are threads or tasks, with one address or with sentinels. `RedisScenario` has the faults
that the store survives, `DataLossScenario` shows the others.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from verification.models.redis_server import Server
from verification.simulation.redis_judge import RedisJudge
from verification.simulation.redis_net import Connections, Network, Sentinel
from verification.simulation.scenario import HEAL, Scenario
from verification.simulation.simulator import EPOCH

from leaselock._backends.redis import index
from leaselock._backends.redis.backend import CAPABILITIES, RedisBackend
from leaselock._backends.redis.clients import settings_of
from leaselock._backends.redis.messages import Address
from leaselock._backends.redis.store import RedisStore

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest
    from verification.simulation.judge import Judge
    from verification.simulation.simulator import Machine


ONE = settings_of("redis://master:1")
WATCHED = settings_of("redis+sentinel://s1:1,s2:2,s3:3/main")
DRIFT = 0.0005
# The maximal times that a server is away, is busy, and that its clock is set back.
AWAY, BUSY, BACK = 2.0, 1.0, 3.0


def trim_always(patch: pytest.MonkeyPatch) -> None:
    """Have each release look at the oldest names in the index, however new they are."""
    patch.setattr(index, "TRIM_EVERY", 1)
    patch.setattr(index, "TRIM_AGE", -EPOCH)


class RedisScenario(Scenario):
    """One seed."""

    form: str | None = None

    def make_model(self) -> Any:
        """Make the server and the network."""
        simulator, chance = self.simulator, self.simulator.chance
        self.offset, self.drift = 0.0, chance.uniform(-DRIFT, DRIFT)
        self.kept = self.form or chance.choice(("hash", "string"))
        self.settings = chance.choice((ONE, ONE, WATCHED))
        if chance.random() < 0.2:
            self.settings = self.settings._replace(replicas=1)
        if self.drift > 0.0:
            # Counters expire within a scenario; longer than a clock is set back.
            self.settings = self.settings._replace(token_ttl=2 * BACK)
        self.net = Network(simulator)
        self.master = Address("master", 1)
        self.net.listen(self.master, self.server())
        for address in WATCHED.addresses:
            self.net.listen(address, Sentinel(lambda: self.master))
        if not self.calm:
            simulator.after(chance.expovariate(0.5), self._trouble)
        return self.net

    def server(self) -> Server:
        """Make a server with the common clock."""
        return Server(self.micros, self._replicas)

    def micros(self) -> int:
        """The servers' clock, in microseconds."""
        return int((EPOCH + self.simulator.time * (1.0 + self.drift) + self.offset) * 1e6)

    def _replicas(self, wanted: int) -> int:
        return wanted if self.calm or self.simulator.chance.random() < 0.9 else 0

    def store_of(self, machine: Machine) -> RedisStore:
        """Make a production store, for threads or for tasks."""
        shared = self.simulator.chance.choice((False, True))
        connections = Connections(self.net, machine, shared)
        return RedisStore(self.settings, machine.now, connections, machine.random)

    def make_judge(self) -> Judge:
        """Make the judge that reads the keys."""
        return RedisJudge(self, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> RedisBackend:
        """Make the production backend."""
        backend = self.store_of(machine).backend(self.kept)
        backend.capabilities = CAPABILITIES
        return backend

    # --- faults ---------------------------------------------------------------------------------

    def troubles(self) -> list[Callable[[], None]]:
        """The faults that the store survives."""
        return [self.restart, self.cut, self.be_busy, self.flush_scripts, self.set_back]

    def _trouble(self) -> None:
        if self.simulator.time < HEAL - AWAY:
            self.simulator.chance.choice(self.troubles())()
            self.simulator.after(self.simulator.chance.expovariate(0.3), self._trouble)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        if self.simulator.trace is not None:
            self.simulator.trace.append(f"{self.simulator.time:10.4f}  server {text}")

    def restart(self, lost: int = 0) -> None:
        """The server ends, and comes back with all but the last changes; or another comes in its
        place, where sentinels watch.
        """
        host = self.net.hosts[self.master]
        if not host.up:
            return
        server = host.server
        self.note(f"ends; {lost} of {len(server.changes)} changes will be lost")
        host.stop()
        back = self.master
        if self.settings.topology == "sentinel" and self.simulator.chance.random() < 0.7:
            back = Address("master", self.master.port + 1)
        known = len(server.changes) - lost
        self.simulator.after(
            self.simulator.chance.uniform(0.01, AWAY), partial(self._back, back, known)
        )

    def _back(self, address: Address, known: int) -> None:
        server = self.net.hosts[self.master].server
        server.restart(known)
        self.net.listen(address, server)
        self.master = address
        self.note(f"is back as {address}")

    def cut(self) -> None:
        """Cut the connections of one machine."""
        name = self.simulator.chance.choice(sorted(self.judge.machines))
        self.note(f"is cut off from {name}")
        for link in list(self.net.hosts[self.master].links):
            if link.machine.name == name:
                link.cut()

    def be_busy(self) -> None:
        """Delay all replies for a while."""
        host = self.net.hosts[self.master]
        host.busy_until = self.simulator.time + self.simulator.chance.uniform(0.0, BUSY)

    def flush_scripts(self) -> None:
        """Remove the scripts."""
        self.net.hosts[self.master].server.scripts.clear()

    def set_back(self) -> None:
        """Set the clock back, so that leases last longer."""
        seconds = min(self.simulator.chance.expovariate(1.0), BACK + self.offset)
        self.note(f"has its clock set back by {seconds:.3f} s")
        self.offset -= seconds


class DataLossScenario(RedisScenario):
    """Faults that the store does not survive: leases may overlap, and only tokens help."""

    works = (0.3, 1.0, 3.0)
    end = 200.0

    def make_judge(self) -> Judge:
        """Make a judge that counts overlaps."""
        judge = super().make_judge()
        judge.shows = True
        return judge

    def troubles(self) -> list[Callable[[], None]]:
        """Loss of data, and a clock that jumps ahead."""
        return [self.lose_all, self.lose_the_last, self.lose_the_last, self.set_ahead, self.cut]

    def lose_all(self) -> None:
        """A restart without persistence."""
        self.restart(len(self.net.hosts[self.master].server.changes))

    def lose_the_last(self) -> None:
        """A restart with what was synced a second ago; a failover to a replica that lags."""
        changes = self.net.hosts[self.master].server.changes
        since = self.micros() - int(self.simulator.chance.uniform(0.0, 1.0) * 1e6)
        self.restart(sum(change.at > since for change in changes))

    def set_ahead(self) -> None:
        """Set the clock ahead, so that leases end early."""
        self.offset += self.simulator.chance.uniform(0.0, BACK)


class RewoundClockScenario(DataLossScenario):
    """The data is lost while the clock is behind: even tokens repeat."""

    def troubles(self) -> list[Callable[[], None]]:
        """Loss of data with a clock that is behind."""
        return [self._rewind]

    def _rewind(self) -> None:
        self.offset -= 60.0
        self.lose_all()
