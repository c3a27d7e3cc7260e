"""Stories on Redlock: three or five models of Redis, each with a clock of its own, and on them the
production text: the protocol, the conversations with each master, and the scripts.

A minority of the masters is in trouble at a time. What a Redlock does not survive is in
`ForgetfulStory`, which is there to show it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from tests.models.redis_server import Server
from tests.simulation.judge import BeliefsJudge, Violation
from tests.simulation.redis import AWAY, BACK, BUSY, DRIFT, ONE
from tests.simulation.redis_judge import read
from tests.simulation.redis_net import Connections, Network
from tests.simulation.story import HEAL, Story
from tests.simulation.world import EPOCH

from leaselock.backends.redis.backend import CAPABILITIES
from leaselock.backends.redis.keys import keys_of
from leaselock.backends.redis.messages import Address
from leaselock.backends.redis.scripted_lock import VOTE
from leaselock.backends.redis.store import RedisStore
from leaselock.backends.redlock.master import Master
from leaselock.backends.redlock.protocol import Redlock

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulation.world import Machine


# How often the judge looks at the votes, and how long one may be nobody's: a question may be under
# way for as long as its asker waited, and what gives it back, too.
LOOKS, STRAY = 2.0, 8.0


class MemoryRow:
    """One master: its server, its clock, and the clients' nodes for it."""

    def __init__(self, story: RedlockStory, number: int) -> None:
        self.world = story.world
        self.node = f"master{number}"
        self.address = Address(self.node, 1)
        self.drift, self.offset = self.world.chance.uniform(-DRIFT, DRIFT), 0.0
        self.server = Server(self.micros)
        self.net = story.net
        self.net.listen(self.address, self.server)
        self.settings = ONE._replace(addresses=(self.address,))

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
        self.server.restart(0)

    def voter(self, name: str) -> str:
        """Whose vote it has, if any."""
        keys = read(self.server, name)
        return keys.holder if keys.end >= self.micros() // 1000 else ""

    def lasts(self, name: str) -> float:
        """For how many seconds it has that vote."""
        return (read(self.server, name).end - self.micros() / 1000) / 1000 / (1.0 + self.drift)

    def counter(self, name: str) -> int:
        """The token of its last vote."""
        value: Any = self.server.data.values.get(keys_of(name, False).token.encode(), b"0")
        return int(value)

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
    """What a majority has, it has by their votes; so beliefs and ends are judged, and that a vote
    has somebody who will give it back.
    """

    def __init__(self, story: RedlockStory, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.story = story
        self.votes_at = 0.0
        # Since when whose vote, on which master, is nobody's.
        self.strays: dict[tuple[str, str, str], float] = {}

    def check(self) -> None:
        """After each step; the votes once in a while, for that takes time."""
        super().check()
        now = self.world.time
        if now < self.votes_at:
            return
        self.votes_at = now + LOOKS
        strays = (
            (place.node, name, holder)
            for place in self.story.masters
            for name in self.story.names
            if (holder := place.voter(name)) and self._is_forgotten(holder)
        )
        self.strays = {stray: self.strays.get(stray, now) for stray in strays}
        for (node, name, holder), since in self.strays.items():
            if now - since > STRAY:
                raise Violation(
                    f"{node} goes on voting on {name!r} for {holder}, which is nobody's"
                )

    def _is_forgotten(self, holder: str) -> bool:
        """Whether its client lives, and knows nothing of it."""
        machine = self.machines[holder.partition(".")[0]]
        if not machine.alive or machine.frozen_until > self.world.time:
            return False
        registry = self.registry[machine.name]
        backend: Any = registry.backend
        known = (
            registry.holds,
            registry.pending_releases,
            backend.latest,
            backend.queued_at,
            backend.uncertain,
        )
        return not any(
            holder in each for each in (*known, *backend.pending_releases.requests.values())
        )

    def at_rest(self) -> None:
        """Everybody was served, and nobody has a vote."""
        self.all_were_served()
        for place in self.story.masters:
            for name in self.story.names:
                holder = place.voter(name)
                # A question that a dead client had sent may have arrived a while ago.
                if holder and self.machines[holder.partition(".")[0]].alive:
                    raise Violation(f"{place.node} has a vote on {name!r} for nobody")


class RedlockStory(Story):
    """One seed."""

    def make_model(self) -> Any:
        """What leads to the masters; each has a node of its own."""
        self.net = Network(self.world)
        count = self.world.chance.choice((3, 5))
        self.masters = [MemoryRow(self, number) for number in range(count)]
        if not self.calm and self.world.chance.random() < 0.7:
            self.world.after(2.0, self._trouble)
        return self.net

    def make_judge(self) -> RedlockJudge:
        """Of several masters."""
        return RedlockJudge(self, self.world, self.model, self.calm, max(self.leases))

    def make_backend(self, machine: Machine) -> Redlock:
        """The production text."""
        shared = self.world.chance.choice((False, True))
        masters = [self._master(place, machine, shared) for place in self.masters]
        return Redlock(masters, CAPABILITIES, machine.now, machine.random)

    def _master(self, place: MemoryRow, machine: Machine, shared: bool) -> Master:
        connections = Connections(self.net, machine, shared)
        store = RedisStore(place.settings, machine.now, connections)
        return Master(place.node, store.backend(VOTE))

    # --- what goes wrong ------------------------------------------------------------------------

    def troubles(self, place: MemoryRow) -> list[Callable[[], None]]:
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


class MinorityStory(RedlockStory):
    """Masters that lose their data, as few as a Redlock survives: of each vote, and of each token,
    a majority of the others must have it, too, and the vote for as long: a renewal that was heard
    by this master and a few others counts on this one.
    """

    def troubles(self, place: MemoryRow) -> list[Callable[[], None]]:
        """Most often that, where it may be."""
        if self._can_do_without(place):
            return [place.forget, place.forget, *super().troubles(place)]
        return super().troubles(place)

    def _can_do_without(self, place: MemoryRow) -> bool:
        return all(self._has_less(place, name) for name in self.names)

    def _has_less(self, place: MemoryRow, name: str) -> bool:
        mine, known, ends = place.voter(name), place.counter(name), place.lasts(name)
        others = [other for other in self.masters if other is not place]
        votes = sum(other.voter(name) == mine and other.lasts(name) >= ends for other in others)
        counters = sum(other.counter(name) >= known for other in others)
        return min(counters, votes if mine else counters) > len(self.masters) // 2


class UnaskedStory(MinorityStory):
    """The same masters lose their data, whatever the others have."""

    def _can_do_without(self, place: MemoryRow) -> bool:
        return True


class ForgetfulStory(RedlockStory):
    """Masters that lose their data, or whose clocks jump ahead: a Redlock does not survive it."""

    def troubles(self, place: MemoryRow) -> list[Callable[[], None]]:
        """Votes that are gone."""
        return [place.forget, partial(place.jump, 1.0)]

    def troubled(self) -> int:
        """A majority."""
        return len(self.masters) // 2 + 1
