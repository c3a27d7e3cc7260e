"""An ensemble of several servers: one agrees first, the others follow; in memory, for simulations.

Law 1: nobody is taken in by a server that is behind what he has seen.
Law 2: a change of the leader breaks all connections and gives each session its whole time anew.
Law 3: a server that is parted from the leader answers reads and takes pings, of which the leader
does not learn; what is to be agreed on waits.

Connections are lost before or after what was sent over them was carried out, aloud or in silence.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.zoo_servers import Agreed, Aloft, Asked, Ended, Link, Server

from leaselock.backends.zookeeper.model import UNTOLD, Model
from leaselock.core.backend import WAKE_ALL
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from leaselock.backends.zookeeper.requests import Flight

# How long a client looks for another server, on the average; and after which part of a session it
# notices that it hears nothing of the old one.
AGAIN, NOTICED = 0.2, 2 / 3
MOST_LAG = 5.0
HALF = 0.5
EPOCH = 32
LOST = "the connection was lost"


class Troubles(NamedTuple):
    """What goes wrong between the servers, and with connections."""

    lag: float = 0.001
    """How late followers are, in seconds, on the average."""
    lost: float = 0.0
    """How likely a flight loses its connection, before or after it was carried out."""


class Ensemble(Model):
    """So many servers, of which one leads. *chance* says who is connected to which."""

    tree: Agreed

    def __init__(
        self,
        now: Callable[[], float],
        after: Callable[[float, Callable[[], None]], None],
        running: Callable[[str], bool],
        timeout: float,
        chance: Random,
        size: int,
    ) -> None:
        super().__init__(now, after, lambda name: running(name) and self._is_heard(name), timeout)
        self.awake = running
        self.tree = Agreed(now)
        self.chance = chance
        self.troubles = Troubles()
        self.servers = [Server(self) for _ in range(size)]
        self.leader = self.servers[0]
        self.elected_at = 0.0
        self.links: dict[str, Link] = {}
        self.held: dict[str, list[Aloft]] = {}

    # --- connections ----------------------------------------------------------------------------

    def _is_heard(self, machine: str) -> bool:
        """Whether the leader learns of its pings."""
        link = self.links[machine]
        return link.server is not None and not (link.mute or link.server.parted)

    def _connect(self, machine: str) -> None:
        old = self.links[machine]
        if old.server is not None or machine in self.dead:
            return
        server = self._found(old)
        if server is None:
            self._connect_soon(machine)
            return
        session = self._session(machine)
        assert session is not None
        # A new session is agreed on, as a node is, so its server must have come as far.
        seen = old.seen if session.number == old.session else len(self.tree.log)
        link = self.links[machine] = Link(machine, session.number, server, seen, self.now())
        server.links[machine] = link
        session.touched = max(session.touched, self.now())
        self._tell(machine, WAKE_ALL)
        for aloft in self.held.pop(machine, ()):
            self._take(link, aloft)

    def _connect_soon(self, machine: str) -> None:
        self.after(self.chance.expovariate(1 / AGAIN), lambda: self._connect(machine))

    def _found(self, link: Link) -> Server | None:
        """The server that its machine tries, if that takes it."""
        if self.now() < self.elected_at or not self.awake(link.machine):
            return None
        server = self.chance.choice(self.servers)
        behind = server.applied < link.seen
        return None if behind or server.parted or not server.up else server

    def cut(self, machine: str) -> None:
        """Its connection is lost, and with it what is under way."""
        link = self.links.get(machine)
        if link is None or link.server is None:
            return
        del link.server.links[machine]
        link.server = None
        for aloft in dict.fromkeys(asked.aloft for asked in link.line):
            aloft.reply(OutcomeUnknown(LOST))
        self._connect_soon(machine)

    def silence(self, machine: str) -> None:
        """What is sent over its connection vanishes; both ends notice late."""
        link = self.links.get(machine)
        if link is not None:
            link.mute = True
            self.after(self.timeout * NOTICED, lambda: self._notice(link))

    def _notice(self, link: Link) -> None:
        if self.links[link.machine] is link:
            self.cut(link.machine)

    def tell(self, link: Link, word: str) -> None:
        """Say it over a connection."""
        if not link.mute:
            self._tell(link.machine, word)

    # --- flights --------------------------------------------------------------------------------

    def _skip(self, machine: str, number: int) -> None:
        if number in self.lines[machine]:
            self.cut(machine)
        super()._skip(machine, number)

    def _land(self, machine: str, flight: Flight, reply: Callable[[object], None]) -> None:
        aloft = Aloft(flight, reply)
        if machine not in self.links:
            self.links[machine] = Link(machine, 0, None, 0, self.now())
            self.held[machine] = [aloft]
            self._connect(machine)
        elif self.links[machine].server is not None or self.chance.random() < HALF:
            self._take(self.links[machine], aloft)
        else:
            self.held.setdefault(machine, []).append(aloft)

    def _take(self, link: Link, aloft: Aloft) -> None:
        server = link.server
        if server is None:
            aloft.reply(OutcomeUnknown(LOST))
        elif aloft.flight.session not in (0, link.session):
            aloft.reply(OutcomeUnknown("the session is over"))
        elif not link.mute:
            asked = [Asked(aloft, operation) for operation in aloft.flight.operations]
            link.line.extend(asked)
            self._carry(link, server, [(link, one) for one in asked if one.after is None])

    def _carry(self, link: Link, server: Server, orders: list[tuple[Link, Asked]]) -> None:
        if self.chance.random() >= self.troubles.lost:
            self._pass_on(server, orders)
            server.answer(link)
            return
        link.mute = True
        fate = self.chance.choice((self._pass_on, self._pass_on_late, None))
        if fate is not None:
            fate(server, orders)
        self.chance.choice((self.cut, self.silence))(link.machine)

    def _pass_on_late(self, server: Server, orders: list[tuple[Link, Asked]]) -> None:
        self.after(self.chance.expovariate(1 / AGAIN), lambda: self._pass_on(server, orders))

    def _pass_on(self, server: Server, orders: Iterable[tuple[Link, Asked]] = ()) -> None:
        """Let the leader hear what a server has for it."""
        server.outbox += orders
        if server.parted or not server.up:
            return
        orders, server.outbox = server.outbox, []
        for link, asked in orders:
            self._agree(link, asked)
        self._publish()

    def _agree(self, link: Link, asked: Asked) -> None:
        """What comes of a session that is over, over a connection that it has left, or of what an
        earlier leader was to hear, is not done; and that connection is cut before an answer.
        """
        session, current = self.sessions.get(link.machine), self.links[link.machine] is link
        of_now = current and link.since >= self.elected_at
        if session and session.number == link.session and of_now:
            session.touched = max(session.touched, self.now() - self.timeout * UNTOLD)
            asked.answer = self.do(asked.operation, session)
        asked.after = len(self.tree.log)

    # --- servers --------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Let the servers know what was agreed on: the leader now, others later, in order."""
        for server in self.servers:
            if server is self.leader:
                server.apply(len(self.tree.log))
            elif server.up and not server.parted:
                self._follow(server, len(self.tree.log))

    def _follow(self, server: Server, end: int) -> None:
        if server.applied < end:
            lag = min(MOST_LAG, self.chance.expovariate(1 / self.troubles.lag))
            server.due = max(server.due, self.now() + lag)
            self.after(server.due - self.now(), lambda: server.apply(end))

    def expire(self, machine: str) -> None:
        """End its session; its server tells it."""
        session = self.sessions.pop(machine)
        self._bury(session)
        self.tree.log.append(Ended(session.number))
        self._publish()

    def elect(self, seconds: float) -> None:
        """Have another leader, after so long. Whoever serves then has all that was agreed on."""
        self.elected_at = self.now() + seconds
        able = [server for server in self.servers if server.up and not server.parted]
        self.leader = self.chance.choice(able)
        self.tree.zxid = ((self.tree.zxid >> EPOCH) + 1) << EPOCH
        for session in self.sessions.values():
            session.touched = self.elected_at
        for server in self.servers:
            server.forsake()
        for server in able:
            server.apply(len(self.tree.log))

    def stop(self, server: Server, seconds: float) -> None:
        """Kill a server. Without a leader, those that are left need so long for another."""
        server.up = False
        server.forsake()
        if server is self.leader:
            self.elect(seconds)

    def start(self, server: Server) -> None:
        """Let it take part again."""
        server.up, server.outbox = True, []
        server.apply(len(self.tree.log))

    def rejoin(self, server: Server, forsaking: bool) -> None:
        """It was parted from the leader, and is not any more: in time for its clients, or not."""
        server.parted = False
        if forsaking:
            server.forsake()
        self._pass_on(server)
        self._follow(server, len(self.tree.log))
