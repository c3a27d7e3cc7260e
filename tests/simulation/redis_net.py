"""The network between simulated clients and models of Redis: links that keep the order, and break.

A link is cut aloud, so that both ends soon know, or in silence: then its client learns by its own
deadline, and the server only after a while, during which it counts the dead listener as alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.simulation.world import LONGEST_DELAY

from leaselock.backends.redis.model import Connection
from leaselock.backends.redis.model_data import ErrorReply

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.simulation.world import Machine, World

    from leaselock.backends.redis.model import Server
    from leaselock.backends.redis.steps import Address, Command

# How long a server believes in a link that is cut in silence.
KEEPALIVE = 8.0
Answer = "Callable[[list[Any] | None], None]"


class Host:
    """Where a server, or a sentinel, listens."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.up = True
        self.readonly = False
        self.busy_until = 0.0
        self.links: list[Link] = []

    def do(self, connection: Connection, command: Command) -> object:
        """One command; what a replica does not do, it refuses."""
        if not self.readonly:
            return connection.do(command)
        if command[0] == "ROLE":
            return [b"slave"]
        return ErrorReply("READONLY You can't write against a read only replica.")

    def stop(self) -> None:
        """End the process: all links are cut, and everybody knows."""
        self.up = False
        links, self.links = self.links, []
        for link in links:
            link.cut(aloud=True)


class Sentinel:
    """It names a master."""

    def __init__(self, master: Callable[[], Address]) -> None:
        self.master = master
        self.channels: dict[bytes, Any] = {}

    def do(self, words: Sequence[bytes]) -> Any:
        """The only question."""
        address = self.master()
        return [address.host.encode(), b"%d" % address.port]

    def settle(self) -> None:
        """It keeps no data."""


class Link:
    """One connection of a machine to a host."""

    def __init__(self, net: Network, machine: Machine, address: Address, owner: Any) -> None:
        self.net = net
        self.machine = machine
        self.address = address
        self.owner = owner
        self.host = net.hosts[address]
        self.connection = Connection(self.host.server, self._push)
        self.open = True
        self.whole = True
        self.heard = False
        self.holder = ""
        self.last_heard = net.world.time
        self.times = [0.0, 0.0]
        self.asked: list[Callable[[list[Any] | None], None]] = []
        self.loop: Any = None
        self.refused: dict[str, Exception] = {}
        self.host.links.append(self)

    def _travel(self, way: int, arrive: Callable[[], None]) -> None:
        """Nothing overtakes what was sent before it."""
        world = self.net.world
        time = max(world.time + self.net.delay(), self.times[way] + 1e-9)
        self.times[way] = time
        world.after(time - world.time, lambda: arrive() if self.whole else None)

    def ask(
        self,
        commands: Sequence[Command],
        answer: Callable[[list[Any] | None], None],
        channels: Sequence[str] = (),
    ) -> None:
        """Send commands, after subscriptions; *answer* has the replies, or None of a lost link."""
        self.asked.append(answer)
        if self.net.happens(self.net.world.faults.lost_request):
            self.cut()
        self._travel(0, lambda: self._arrive(commands, answer, channels))

    def _arrive(
        self,
        commands: Sequence[Command],
        answer: Callable[[list[Any] | None], None],
        channels: Sequence[str],
    ) -> None:
        busy = self.host.busy_until - self.net.world.time
        if busy > 0.0:
            self._wait(busy, lambda: self._arrive(commands, answer, channels))
            return
        self.net.asker = self.machine.name
        for channel in channels:
            self.connection.subscribe(channel)
        replies = [self.host.do(self.connection, command) for command in commands]
        if self.net.happens(self.net.world.faults.lost_reply):
            self.cut()
        self._travel(1, lambda: self._answered(answer, replies))

    def _wait(self, seconds: float, arrive: Callable[[], None]) -> None:
        world = self.net.world
        self.times[0] = max(self.times[0] + 1e-9, world.time + seconds)
        world.after(self.times[0] - world.time, lambda: arrive() if self.whole else None)

    def _answered(self, answer: Callable[[list[Any] | None], None], replies: list[Any]) -> None:
        self.last_heard = self.net.world.time
        if self.open and answer in self.asked:
            self.asked.remove(answer)
            answer(replies)

    def tell(self, verb: str, channel: str) -> None:
        """Begin or end a subscription, as a wire does."""
        what = self.connection.subscribe if verb == "SUBSCRIBE" else self.connection.unsubscribe
        self._travel(0, lambda: what(channel))

    def unsubscribe(self, channels: Sequence[str]) -> None:
        """Listen no more, from when that has arrived on."""

        def arrive() -> None:
            for channel in channels:
                self.connection.unsubscribe(channel)

        self._travel(0, arrive)

    def _push(self, channel: bytes, word: bytes) -> None:
        if self.net.happens(self.net.world.faults.lost_message):
            self.cut(aloud=False)
        self._travel(1, lambda: self._pushed(channel.decode(), word.decode()))

    def _pushed(self, channel: str, word: str) -> None:
        self.last_heard = self.net.world.time
        if self.open:
            self.owner.heard(self, channel, word)

    def cut(self, aloud: bool | None = None) -> None:
        """Nothing passes any more."""
        world = self.net.world
        if not self.whole:
            return
        self.whole = False
        aloud = world.chance.random() < 0.5 if aloud is None else aloud
        if aloud:
            self.connection.close()
            world.after(self.net.delay(), self.lost)
        else:
            world.after(world.chance.uniform(0.5, KEEPALIVE), self.connection.close)

    def lost(self) -> None:
        """Its client learns of it."""
        if not self.open:
            return
        self.open = False
        asked, self.asked = self.asked, []
        for answer in asked:
            answer(None)
        self.owner.lost(self)

    def close(self) -> None:
        """Its client ends it; the server sees that when it sees anything."""
        if self.open:
            self.open = False
            self.asked = []
            self._travel(0, self._closed)

    def _closed(self) -> None:
        self.whole = False
        self.connection.close()


class Network:
    """Who can be reached."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.hosts: dict[Address, Host] = {}
        # The machine that a server has heard last.
        self.asker = ""

    def listen(self, address: Address, server: Server | Sentinel) -> Host:
        """A host for a server."""
        host = self.hosts[address] = Host(server)
        return host

    def happens(self, chance: float) -> bool:
        """Whether a fault of that likelihood happens now."""
        return chance > 0.0 and self.world.chance.random() < chance

    def delay(self) -> float:
        """How long something travels."""
        chance, faults = self.world.chance, self.world.faults
        slow = 1000.0 if self.happens(faults.slow) else 1.0
        return min(LONGEST_DELAY, chance.expovariate(1.0 / faults.delay) * slow)

    def connect(
        self, machine: Machine, address: Address, owner: Any, then: Callable[[Link | None], None]
    ) -> None:
        """A new link, or None where nobody listens."""

        def arrive() -> None:
            host = self.hosts[address]
            then(Link(self, machine, address, owner) if host.up else None)

        self.world.after(2 * self.delay(), arrive)

    def forget(self, machine: Machine) -> None:
        """A machine is gone: its kernel says so, or its power was cut."""
        for host in self.hosts.values():
            for link in [link for link in host.links if link.machine is machine]:
                link.open = False
                link.cut(aloud=self.world.chance.random() < 0.7)
                host.links.remove(link)
