"""The network between simulated clients and models of Redis: ordered connections, which may break.

A connection breaks with notice, so that both ends soon know, or silently: then its client learns
by its own deadline, and the server after a while, during which it counts the dead client as
connected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from verification.models.redis_data import ErrorReply
from verification.models.redis_runner import unpacked
from verification.models.redis_server import Connection as ServerSide
from verification.simulation.simulator import LONGEST_DELAY

from leaselock._backends.redis.messages import Connect, Send, SharedConnection, Unreachable
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from verification.models.redis_server import Server
    from verification.simulation.simulator import Machine, Simulator

    from leaselock._backends.redis.codec import Command, Subscription
    from leaselock._backends.redis.messages import Address, Listen
    from leaselock._core.contract.effects import Signal

# How long a server keeps a connection that broke without an error.
KEEPALIVE = 8.0
# The minimal time of a request.
SOON = 0.001


class Host:
    """An address at which a server or a sentinel listens."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.up = True
        self.readonly = False
        self.busy_until = 0.0
        self.links: list[SimulatedConnection] = []

    def do(self, connection: ServerSide, command: Command) -> object:
        """Execute a command; a replica refuses writes."""
        if not self.readonly:
            return connection.do(command)
        if command[0] == b"ROLE":
            return [b"slave"]
        return ErrorReply("READONLY You can't write against a read only replica.")

    def stop(self) -> None:
        """End the process: all connections break with an error."""
        self.up = False
        links, self.links = self.links, []
        for link in links:
            link.cut(aloud=True)


class Sentinel:
    """A sentinel, which names a master."""

    def __init__(self, master: Callable[[], Address]) -> None:
        self.master = master
        self.channels: dict[bytes, Any] = {}
        self.tracked: dict[bytes, Any] = {}

    def do(self, words: Sequence[bytes]) -> Any:
        """Return the address of the master, whatever the command."""
        address = self.master()
        return [address.host.encode(), b"%d" % address.port]

    def record_changes(self) -> None:
        """Do nothing: a sentinel has no data."""


class Timer:
    """A later step of a machine, which may be frozen or dead by then."""

    def __init__(self, machine: Machine, seconds: float, action: Callable[[], None]) -> None:
        self.machine = machine
        self.action: Callable[[], None] | None = action
        machine.simulator.after(seconds, self._ring)

    def cancel(self) -> None:
        """Do nothing."""
        self.action = None

    def _ring(self) -> None:
        machine = self.machine
        thaw = machine.frozen_until - machine.simulator.time
        if thaw > 0.0:
            machine.simulator.after(thaw, self._ring)
        elif machine.alive and self.action is not None:
            self.action()
        else:
            machine.simulator.quiet = True


class Request:
    """A request in flight, and the handler of its replies."""

    __slots__ = ("asked", "reply")

    def __init__(self, asked: float, reply: Callable[[object], None]) -> None:
        self.asked = asked
        self.reply = reply


class SimulatedConnection(SharedConnection):
    """A connection of a machine to a host, for threads or, if shared, for tasks."""

    def __init__(
        self,
        kind: Connections,
        address: Address,
        changed: Callable[[Any], None],
    ) -> None:
        super().__init__(address, kind.net.simulator.time)
        self.net = kind.net
        self.machine = kind.machine
        self.shared = kind.SHARED
        self.changed = changed
        self.closed = False
        # Whether messages arrive, and when the last one in each direction arrives.
        self.whole = True
        self.times = [0.0, 0.0]
        self.requests: list[Request] = []
        self.wake: Callable[[], None] | None = None
        self.host: Host
        self.server_side: ServerSide

    def __repr__(self) -> str:
        return str(self.address)

    def __deepcopy__(self, memo: dict[int, object]) -> SimulatedConnection:
        """Abandon the connection in a forked child, which closes its descriptor."""
        child = SimulatedConnection(
            Connections(self.net, self.machine, self.shared), self.address, _no
        )
        memo[id(self)] = child
        return child

    def start(self, message: Any, until: float, reply: Callable[[object], None]) -> None:
        """Execute a call; requests are sent in this step of the client."""
        left = max(SOON, until - self.machine.now())
        if isinstance(message, bytes):
            message = Send(message, 1, ())
        if isinstance(message, Connect):
            self._connect(left, reply)
        elif isinstance(message, Send):
            self._send(message, left, reply)
        else:
            self._listen(message, left, reply)

    def interrupted(self) -> None:
        """Handle the interruption of the process that waits in a call: a thread closes its
        connection, as after any error; a task leaves the connection to the others.
        """
        if not self.shared:
            self.close()

    # --- the client's side ----------------------------------------------------------------------

    def _connect(self, seconds: float, reply: Callable[[object], None]) -> None:
        request = Request(self.net.simulator.time, reply)
        self.requests.append(request)

        def arrive() -> None:
            self.host = self.net.hosts[self.address]
            if request not in self.requests:
                self.net.simulator.quiet = True
                return
            self.requests.remove(request)
            if not self.host.up:
                reply(Unreachable("nothing listens there"))
                return
            self.server_side = ServerSide(self.host.server, self._push)
            self.host.links.append(self)
            self.open = True
            reply(None)

        self.net.arrive_connected(self, arrive)
        self.net.simulator.after(seconds, lambda: self._too_late(request))

    def _send(self, message: Send, seconds: float, reply: Callable[[object], None]) -> None:
        if not self.open:
            reply(
                OutcomeUnknown("the connection was lost") if self.shared else NotApplied("closed")
            )
            return
        request = Request(self.net.simulator.time, reply)
        self.requests.append(request)
        for _, channel in message.subscriptions:
            self.refused.pop(channel, None)
        if self.net.happens(self.net.simulator.faults.lost_request):
            self.cut()
        commands = unpacked(message.data)
        self._travel(0, lambda: self._arrive(commands, request))
        self.net.simulator.after(seconds, lambda: self._too_late(request))

    def _too_late(self, request: Request) -> None:
        if request not in self.requests:
            self.net.simulator.quiet = True
            return
        thaw = self.machine.frozen_until - self.net.simulator.time
        if thaw > 0.0:
            self.net.simulator.after(thaw, lambda: self._too_late(request))
            return
        self.requests.remove(request)
        request.reply(
            OutcomeUnknown("no answer in time") if self.open else Unreachable("no answer")
        )
        if not self.shared:
            self.close()
        elif self.open and self.last_used < request.asked:
            self.lost()
            self._travel(0, self._closed)

    def _answered(self, request: Request, replies: list[Any]) -> None:
        self.last_used = self.net.simulator.time
        if self.open and request in self.requests:
            self.requests.remove(request)
            request.reply(replies)

    def _listen(self, message: Listen, seconds: float, reply: Callable[[object], None]) -> None:
        signal: Signal = message.signal
        if signal.is_set or not self.open or (self.pushes and not self.shared):
            reply(None)
            return
        done = False

        def wake() -> None:
            nonlocal done
            if not done:
                done = True
                if self.wake is wake:
                    self.wake = None
                if interrupt in signal.wakers:
                    signal.wakers.remove(interrupt)
                reply(None)

        def interrupt() -> None:
            if not self.shared and not done:
                self.close()
            wake()

        signal.wakers.append(interrupt)
        if not self.shared:
            self.wake = wake
        if seconds < FOREVER:
            self.net.simulator.after(seconds, wake)

    def _pushed(self, channel: str, word: str) -> None:
        self.last_used = self.net.simulator.time
        if self.open:
            self.pushes.append((channel, word))
            self._notify()

    def _notify(self) -> None:
        """Notify the client of a change, in its event loop or its listening thread."""
        thaw = self.machine.frozen_until - self.net.simulator.time
        if not self.shared:
            if self.wake is not None:
                self.wake()
        elif thaw > 0.0:
            self.net.simulator.after(thaw, self._notify)
        elif self.machine.alive:
            self.changed(self)

    def is_usable(self) -> bool:
        """Return whether the connection is open."""
        return self.open

    def tell(self, data: bytes, subscriptions: Sequence[Subscription]) -> bool:
        """Send subscriptions."""
        commands = unpacked(data)
        self._travel(0, lambda: self._carry_out(commands))
        return True

    def later(self, seconds: float, step: Callable[[], None]) -> Timer:
        """Execute a step later."""
        return Timer(self.machine, seconds, step)

    def leave(self) -> None:
        """Handle a cancelled caller."""
        if not self.shared:
            self.close()

    def close(self) -> None:
        """Close the connection on the client's side; the server notices when messages arrive."""
        if not self.closed:
            self.closed = True
            if self.open:
                self._travel(0, self._closed)
            self._fail()

    def after_fork(self) -> None:
        """Abandon the connection on the client's side."""
        self.open = False

    def lost(self) -> None:
        """Notify the client that the connection broke."""
        if self.open:
            self._fail()

    def _fail(self) -> None:
        self.open = False
        requests, self.requests = self.requests, []
        for request in requests:
            request.reply(OutcomeUnknown("the connection was lost"))
        if self.machine.alive:
            self._notify()

    # --- the network, and the server's side -----------------------------------------------------

    def _travel(self, way: int, arrive: Callable[[], object]) -> None:
        """Send a message: messages stay in order, and a frozen sender sends nothing."""
        simulator = self.net.simulator
        leaves = max(simulator.time, self.machine.frozen_until) if way == 0 else simulator.time
        leaves = max(leaves, self.net.partitioned.get((self.machine.name, way), 0.0))
        time = max(leaves + self.net.delay(), self.times[way] + 1e-9)
        self.times[way] = time
        simulator.after(time - simulator.time, lambda: self._pass(arrive))

    def _pass(self, arrive: Callable[[], object]) -> None:
        if self.whole:
            arrive()

    def _arrive(self, commands: Sequence[Command], request: Request) -> None:
        busy = self.host.busy_until - self.net.simulator.time
        if busy > 0.0:
            simulator = self.net.simulator
            self.times[0] = max(self.times[0] + 1e-9, simulator.time + busy)
            simulator.after(
                self.times[0] - simulator.time,
                lambda: self._arrive(commands, request) if self.whole else None,
            )
            return
        self.net.asker = self.machine.name
        replies = self._carry_out(commands)
        if self.net.happens(self.net.simulator.faults.lost_reply):
            self.cut()
        self._travel(1, lambda: self._answered(request, replies))

    def _carry_out(self, commands: Sequence[Command]) -> list[Any]:
        replies = []
        for command in commands:
            verb = command[0]
            if verb in (b"SUBSCRIBE", b"SSUBSCRIBE"):
                self.server_side.subscribe(_text(command[1]))
            elif verb in (b"UNSUBSCRIBE", b"SUNSUBSCRIBE"):
                self.server_side.unsubscribe(_text(command[1]))
            else:
                replies.append(self.host.do(self.server_side, command))
        return replies

    def _push(self, channel: bytes, word: bytes) -> None:
        if self.net.happens(self.net.simulator.faults.lost_message):
            self.cut(aloud=False)
        self._travel(1, lambda: self._pushed(channel.decode(), word.decode()))

    def cut(self, aloud: bool | None = None) -> None:
        """Break the connection, with an error for both ends if *aloud*."""
        simulator = self.net.simulator
        if not self.whole:
            return
        self.whole = False
        aloud = simulator.chance.random() < 0.5 if aloud is None else aloud
        if aloud:
            self.server_side.close()
            simulator.after(self.net.delay(), self.lost)
        else:
            simulator.after(simulator.chance.uniform(0.5, KEEPALIVE), self.server_side.close)

    def _closed(self) -> None:
        self.whole = False
        self.server_side.close()


def _text(word: object) -> str:
    assert isinstance(word, bytes)
    return word.decode()


def _no(connection: Any) -> None:
    """Ignore changes of an inherited connection."""


class Connections:
    """The connection factory of one machine, for `RedisStore`."""

    def __init__(self, net: Network, machine: Machine, shared: bool) -> None:
        self.net = net
        self.machine = machine
        self.SHARED = shared

    def __call__(
        self, settings: Any, address: Address, now: Any, changed: Callable[[Any], None]
    ) -> SimulatedConnection:
        """Make a connection that is not connected yet."""
        return self.net.connection(self, address, changed)


class Network:
    """The servers, and the connections to them."""

    def __init__(self, simulator: Simulator) -> None:
        self.simulator = simulator
        self.hosts: dict[Address, Host] = {}
        # Until when what a machine sends (0) or is sent (1) is delayed. TCP repeats it until then.
        self.partitioned: dict[tuple[str, int], float] = {}
        # The machine whose request was executed last.
        self.asker = ""

    def __deepcopy__(self, memo: dict[int, object]) -> Network:
        return self

    def listen(self, address: Address, server: Server | Sentinel) -> Host:
        """Add a host for a server."""
        host = self.hosts[address] = Host(server)
        return host

    def happens(self, chance: float) -> bool:
        """Return whether a fault of that probability happens now."""
        return chance > 0.0 and self.simulator.chance.random() < chance

    def delay(self) -> float:
        """Return the travel time of a message."""
        chance, faults = self.simulator.chance, self.simulator.faults
        slow = 1000.0 if self.happens(faults.slow) else 1.0
        return min(LONGEST_DELAY, chance.expovariate(1.0 / faults.delay) * slow)

    def connection(
        self, kind: Connections, address: Address, changed: Callable[[Any], None]
    ) -> SimulatedConnection:
        """Make a connection that is not connected yet."""
        return SimulatedConnection(kind, address, changed)

    def arrive_connected(self, connection: SimulatedConnection, arrive: Callable[[], None]) -> None:
        """Connect, which takes a round trip."""
        ways = self.partitioned
        healed = max(ways.get((connection.machine.name, way), 0.0) for way in (0, 1))
        self.simulator.after(max(0.0, healed - self.simulator.time) + 2 * self.delay(), arrive)

    def die(self, name: str) -> None:
        """Handle the death of a machine, by a crash of the process or of its power."""
        for host in self.hosts.values():
            for link in [link for link in host.links if link.machine.name == name]:
                link.open = False
                link.cut(aloud=self.simulator.chance.random() < 0.7)
                host.links.remove(link)
