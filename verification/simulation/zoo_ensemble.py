"""An ensemble of several servers: the leader commits, the others follow; in memory.

Invariant 1: a client is not accepted by a server that is behind what the client has seen.
Invariant 2: an election breaks all connections, and restarts the timeout of each session.
Invariant 3: a server that is partitioned from the leader answers reads and takes pings, of which
the leader does not learn; writes wait.

A connection is lost before or after the requests sent over it were executed, and its client notices
at once or late.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from verification.models.zookeeper_model import LATENCY, Model
from verification.simulation.zoo_servers import (
    CommittedTree,
    InFlight,
    Link,
    PendingOperation,
    Server,
    SessionEnded,
)

from leaselock._core.contract.backend import WAKE_ALL
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from random import Random

    from leaselock._backends.zookeeper.requests import Batch

# The mean time that a client needs to find another server, and the fraction of a session timeout
# after which it notices that the old one is silent.
AGAIN, NOTICED = 0.2, 2 / 3
MOST_LAG = 5.0
HALF = 0.5
EPOCH = 32
LOST = "the connection was lost"


class Troubles(NamedTuple):
    """Faults between the servers, and of connections."""

    lag: float = 0.001
    """The mean lag of the followers, in seconds."""
    lost: float = 0.0
    """The probability that a batch loses its connection, before or after its execution."""


class Ensemble(Model):
    """*size* servers, one of which is the leader. *chance* selects the server of a connection."""

    tree: CommittedTree

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
        self.tree = CommittedTree(now)
        self.chance = chance
        self.troubles = Troubles()
        self.servers = [Server(self) for _ in range(size)]
        self.leader = self.servers[0]
        self.elected_at = 0.0
        self.links: dict[str, Link] = {}
        self.held: dict[str, list[InFlight]] = {}
        self.connecting: dict[str, list[Callable[[object], None]]] = {}

    # --- connections ----------------------------------------------------------------------------

    def _is_heard(self, machine: str) -> bool:
        """Whether the leader learns of the machine's pings."""
        link = self.links[machine]
        return link.server is not None and not (link.mute or link.server.partitioned)

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
        # A new session is committed like a node, so its server must have applied that.
        seen = old.seen if session.number == old.session else len(self.tree.log)
        link = self.links[machine] = Link(machine, session.number, server, seen, self.now())
        server.links[machine] = link
        session.touched = max(session.touched, self.now())
        self._notify(machine, WAKE_ALL)
        for in_flight in self.held.pop(machine, ()):
            self._take(link, in_flight)
        for reply in self.connecting.pop(machine, ()):
            reply(None)

    def _connect_soon(self, machine: str) -> None:
        self.after(self.chance.expovariate(1 / AGAIN), lambda: self._connect(machine))

    def _found(self, link: Link) -> Server | None:
        """The server that the machine tries, if that accepts it."""
        if self.now() < self.elected_at or not self.awake(link.machine):
            return None
        server = self.chance.choice(self.servers)
        behind = server.applied < link.seen
        return None if behind or server.partitioned or not server.up else server

    def cut(self, machine: str) -> None:
        """The connection of a machine is lost with everything on its way."""
        link = self.links.get(machine)
        if link is None or link.server is None:
            return
        del link.server.links[machine]
        link.server = None
        for in_flight in dict.fromkeys(one.in_flight for one in link.pending):
            in_flight.reply(OutcomeUnknown(LOST))
        self._connect_soon(machine)

    def silence(self, machine: str) -> None:
        """Messages over the connection of a machine are lost; both ends notice late."""
        link = self.links.get(machine)
        if link is not None:
            link.mute = True
            self.after(self.timeout * NOTICED, lambda: self._notice(link))

    def _notice(self, link: Link) -> None:
        if self.links[link.machine] is link:
            self.cut(link.machine)

    def send_event(self, link: Link, event: str) -> None:
        """Send an event over a connection."""
        if not link.mute:
            self._notify(link.machine, event)

    def is_connected(self, machine: str) -> bool:
        """Whether the machine has a connection, as far as it knows."""
        return machine in self.links and self.links[machine].server is not None

    def connect(self, machine: str, reply: Callable[[object], None]) -> None:
        """Reply when the machine has a connection."""
        if self.is_connected(machine):
            reply(None)
            return
        self.connecting.setdefault(machine, []).append(reply)
        self._first_link(machine)

    def _first_link(self, machine: str) -> None:
        if machine not in self.links:
            self.links[machine] = Link(machine, 0, None, 0, self.now())
            self._connect(machine)

    # --- batches --------------------------------------------------------------------------------

    def _skip(self, machine: str, number: int) -> None:
        if number in self.early[machine]:
            self.cut(machine)
        super()._skip(machine, number)

    def execute(self, machine: str, batch: Batch, reply: Callable[[object], None]) -> None:
        """Send one batch over the connection of its machine, once there is one."""
        in_flight = InFlight(batch, reply)
        if machine not in self.links:
            self.held[machine] = [in_flight]
            self._first_link(machine)
        elif self.links[machine].server is not None or self.chance.random() < HALF:
            self._take(self.links[machine], in_flight)
        else:
            # It was sent before the client noticed the loss, and kazoo has kept it.
            self.held.setdefault(machine, []).append(in_flight)

    def _take(self, link: Link, in_flight: InFlight) -> None:
        server = link.server
        if server is None:
            in_flight.reply(OutcomeUnknown(LOST))
        elif in_flight.batch.session not in (0, link.session):
            in_flight.reply(OutcomeUnknown("the session is over"))
        elif not link.mute:
            pending = [PendingOperation(in_flight, one) for one in in_flight.batch.operations]
            link.pending.extend(pending)
            self._transmit(link, server, [(link, one) for one in pending if one.after is None])

    def _transmit(
        self, link: Link, server: Server, writes: list[tuple[Link, PendingOperation]]
    ) -> None:
        if self.chance.random() >= self.troubles.lost:
            self._forward(server, writes)
            server.answer(link)
            return
        link.mute = True
        fate = self.chance.choice((self._forward, self._forward_late, None))
        if fate is not None:
            fate(server, writes)
        self.chance.choice((self.cut, self.silence))(link.machine)

    def _forward_late(self, server: Server, writes: list[tuple[Link, PendingOperation]]) -> None:
        self.after(self.chance.expovariate(1 / AGAIN), lambda: self._forward(server, writes))

    def _forward(
        self, server: Server, writes: Iterable[tuple[Link, PendingOperation]] = ()
    ) -> None:
        """Forward the writes that a server has received to the leader."""
        server.outbox += writes
        if server.partitioned or not server.up:
            return
        writes, server.outbox = server.outbox, []
        for link, write in writes:
            self._commit(link, write)
        self._publish()

    def _commit(self, link: Link, write: PendingOperation) -> None:
        """A write of a session that has ended, over a connection that it has left, or from before
        the election, is not executed; its connection is cut before it is answered.
        """
        session, current = self.sessions.get(link.machine), self.links[link.machine] is link
        valid = current and link.since >= self.elected_at
        if session and session.number == link.session and valid:
            session.touched = max(session.touched, self.now() - self.timeout * LATENCY)
            write.reply = self.do(write.operation, session)
        write.after = len(self.tree.log)

    # --- servers --------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Let the servers apply the log: the leader now, the others later, in order."""
        for server in self.servers:
            if server is self.leader:
                server.apply(len(self.tree.log))
            elif server.up and not server.partitioned:
                self._follow(server, len(self.tree.log))

    def _follow(self, server: Server, end: int) -> None:
        if server.applied < end:
            lag = min(MOST_LAG, self.chance.expovariate(1 / self.troubles.lag))
            server.due = max(server.due, self.now() + lag)
            self.after(server.due - self.now(), lambda: server.apply(end))

    def expire(self, machine: str) -> None:
        """End the session of a machine, which its server disconnects."""
        session = self.sessions.pop(machine)
        self._delete_nodes(session)
        self.tree.log.append(SessionEnded(session.number))
        self._publish()

    def elect(self, seconds: float) -> None:
        """Elect another leader within these seconds. The servers then have every write."""
        self.elected_at = self.now() + seconds
        able = [server for server in self.servers if server.up and not server.partitioned]
        self.leader = self.chance.choice(able)
        self.tree.zxid = ((self.tree.zxid >> EPOCH) + 1) << EPOCH
        for session in self.sessions.values():
            session.touched = self.elected_at
        for server in self.servers:
            server.drop_clients()
        for server in able:
            server.apply(len(self.tree.log))

    def stop(self, server: Server, seconds: float) -> None:
        """Kill a server. If it was the leader, the others elect another one."""
        server.up = False
        server.drop_clients()
        if server is self.leader:
            self.elect(seconds)

    def start(self, server: Server) -> None:
        """Start a server again."""
        server.up, server.outbox = True, []
        server.apply(len(self.tree.log))

    def rejoin(self, server: Server, dropping: bool) -> None:
        """End the partition of a server from the leader; *dropping* says that the
        server has cut its connections meanwhile.
        """
        server.partitioned = False
        if dropping:
            server.drop_clients()
        self._forward(server)
        self._follow(server, len(self.tree.log))
