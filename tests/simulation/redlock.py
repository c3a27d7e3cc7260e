"""Stories on Redlock: three or five models of Redis, each with a clock of its own, and on them the
production text: the protocol, the conversations with each master, and the scripts.

A minority of the masters is in trouble at a time. What a Redlock does not survive is in
`ForgetfulStory`, which is there to show it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.judge import BeliefsJudge, Violation
from tests.simulation.redis import AWAY, BACK, BUSY, DRIFT, ONE, Near
from tests.simulation.redis_client import Client
from tests.simulation.redis_judge import read
from tests.simulation.redis_net import Network
from tests.simulation.redis_tasks import Tasks
from tests.simulation.story import HEAL, Story

from holdfast.backends.redis.hash import VOTE
from holdfast.backends.redis.model import Server
from holdfast.backends.redis.protocol import CAPABILITIES
from holdfast.backends.redis.steps import Address
from holdfast.backends.redlock.masters import Master
from holdfast.backends.redlock.protocol import Redlock
from holdfast.drivers.simulated_machine import EPOCH

if TYPE_CHECKING:
    from collections.abc import Callable

    from holdfast.drivers.simulated_machine import Machine


class Place:
    """One master: its server, its clock, and the clients' nodes for it."""

    def __init__(self, story: RedlockStory, number: int) -> None:
        self.world = story.world
        self.node = f"master{number}"
        self.address = Address(self.node, 1)
        self.drift, self.offset = self.world.chance.uniform(-DRIFT, DRIFT), 0.0
        self.server = Server(self.micros)
        self.net = story.net
        self.net.listen(self.address, self.server)
        settings = ONE._replace(addresses=(self.address,))
        self.near = Near(
            self.net, lambda machine: story.kinds[machine.name](self.net, machine, settings, VOTE)
        )

    def micros(self) -> int:
        """Its clock."""
        return int((EPOCH + self.world.time * (1.0 + self.drift) + self.offset) * 1e6)

    def restart(self, lost: int = 0) -> None:
        """It ends, and comes back with all but the last changes."""
        host = self.net.hosts[self.address]
        if host.up:
            host.stop()
            known = len(self.server.changes) - lost
            self.world.after(self.world.chance.uniform(0.01, AWAY), partial(self._back, known))

    def _back(self, known: int) -> None:
        self.server.restart(known)
        self.net.listen(self.address, self.server)

    def forget(self) -> None:
        """It comes back without its data."""
        self.restart(len(self.server.changes))

    def be_busy(self) -> None:
        """It answers late."""
        host = self.net.hosts[self.address]
        host.busy_until = self.world.time + self.world.chance.uniform(0.0, BUSY)

    def lose_scripts(self) -> None:
        """It forgets the scripts."""
        self.server.scripts.clear()

    def jump(self, ahead: float = -1.0) -> None:
        """Its clock is set back, so that leases last longer; or ahead."""
        self.offset += ahead * self.world.chance.uniform(0.0, BACK)

    def be_cut_off(self) -> None:
        """All links to it are cut."""
        for link in list(self.net.hosts[self.address].links):
            link.cut()


class RedlockJudge(BeliefsJudge):
    """What a majority has, it has by their votes; so only beliefs and ends are judged."""

    def __init__(self, story: RedlockStory, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.story = story

    def at_rest(self) -> None:
        """Everybody was served, and nobody has a vote."""
        self.all_were_served()
        for place in self.story.masters:
            for name in self.story.names:
                keys = read(place.server, name)
                # A question that a dead client had sent may have arrived a while ago.
                alive = keys.holder and self.machines[keys.holder.partition(".")[0]].alive
                if alive and keys.end >= place.micros() // 1000:
                    raise Violation(f"{place.node} has a vote on {name!r} for nobody")


class RedlockStory(Story):
    """One seed."""

    def make_model(self) -> Any:
        """What leads to the masters; each has a node of its own."""
        self.net = Network(self.world)
        self.kinds: dict[str, type[Client]] = {}
        count = self.world.chance.choice((3, 5))
        self.masters = [Place(self, number) for number in range(count)]
        if not self.calm and self.world.chance.random() < 0.7:
            self.world.after(2.0, self._trouble)
        return self.masters[0].near

    def make_judge(self) -> RedlockJudge:
        """Of several masters; here they get their names."""
        self.world.models = {place.node: place.near for place in self.masters}
        return RedlockJudge(self, self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Redlock:
        """The production text."""
        self.kinds[machine.name] = self.world.chance.choice((Client, Tasks))
        masters = [self._master(place, machine) for place in self.masters]
        return Redlock(masters, CAPABILITIES, machine.now, machine.random)

    def _master(self, place: Place, machine: Machine) -> Master:
        client = place.near.of(machine)
        return Master(place.node, place.node, client.forget, client.disturb)

    def nodes_of(self, parent: Machine, child: Machine) -> dict[int, object]:
        """Its own links."""
        self.kinds[child.name] = self.kinds[parent.name]
        return {id(p.near.of(parent)): p.near.of(child) for p in self.masters}

    # --- what goes wrong ------------------------------------------------------------------------

    def troubles(self, place: Place) -> list[Callable[[], None]]:
        """What a minority of the masters may be in."""
        return [place.restart, place.be_busy, place.lose_scripts, place.jump, place.be_cut_off]

    def troubled(self) -> int:
        """How many at a time."""
        return len(self.masters) // 2

    def _trouble(self) -> None:
        world, chance = self.world, self.world.chance
        if world.time >= HEAL - AWAY:
            return
        for place in chance.sample(self.masters, self.troubled()):
            chance.choice(self.troubles(place))()
        world.after(AWAY + chance.expovariate(0.5), self._trouble)


class ForgetfulStory(RedlockStory):
    """Masters that lose their data, or whose clocks jump ahead: a Redlock does not survive it."""

    def troubles(self, place: Place) -> list[Callable[[], None]]:
        """Votes that are gone."""
        return [place.forget, partial(place.jump, 1.0)]

    def troubled(self) -> int:
        """A majority."""
        return len(self.masters) // 2 + 1
