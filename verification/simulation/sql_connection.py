"""Simulated connections to a simulated database, for the library's pool, listener and sessions.

A connection is lost in silence: nothing that is sent over it arrives any more, and both ends notice
when their keepalive fails, unless they notice earlier by a timeout of their own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leaselock._backends.sql.connection import AwaitNotification, Connect, Execute, Receive, Send
from leaselock._backends.sql.lock_row import Head
from leaselock._backends.sql.statements import Dialect, SqlError, dialect_of
from leaselock._backends.sql.store import SqlStore
from leaselock._backends.sql.url import Target
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.simulation.simulator import Machine

    from leaselock._backends.sql.session_connection import SessionConnection
    from leaselock._backends.sql.statements import Result, Script
    from leaselock._core.contract.effects import Call

    Reply = Callable[[object], None]

SESSION_TIMEOUT = 4.0
KEEPALIVE = 15.0
TICK = 1e-6
# So few waiters are read at once that often more are needed.
HEAD = Head(1, 2)


class ByName(Dialect):
    """A dialect that sends statements by their names."""

    def text(self, script: Script, prepared: set[str] | None) -> tuple[Any, list[str]]:
        """Return the script itself."""
        return script, []

    def grouped(self, script: Script, results: list[Result]) -> list[Result]:
        """Return the results, one for each part."""
        return results


class Network:
    """The network of one machine."""

    def __init__(self, machine: Machine, server: Any) -> None:
        self.machine = machine
        self.simulator = machine.simulator
        self.server = server
        self.connections: list[SimulatedConnection] = []
        self.watchers: list[SimulatedWatcher] = []

    def happens(self, chance: float) -> bool:
        """Return whether a fault of that probability happens now."""
        return chance > 0.0 and self.simulator.chance.random() < chance

    def delay(self) -> float:
        """Return the travel time of a message."""
        delay: float = self.simulator.delay(self.simulator.faults)
        return delay

    def after(self, until: float, action: Callable[[], None]) -> None:
        """Schedule an action by the machine's clock."""
        if until < float("inf"):
            self.simulator.after(max(0.0, until - self.machine.now()), action)

    def die(self) -> None:
        """Handle a crash: the kernel closes the connections, unless the power was cut."""
        if self.happens(0.7):
            for connection in self.connections:
                connection.end_session()


class SimulatedConnection:
    """A client's connection, as an asyncio client has it: it survives a cancelled request."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.prepared: set[str] | None = None
        self.number = self.backend = 0
        self.reused = False
        # Closed by the client; its end noticed by the client; messages still arrive.
        self.closed = self.over = False
        self.whole = True
        self.session: Any = None
        self.reply_pending = False
        # The request in progress leaves no transaction, and was not given up at its deadline.
        self.complete = False
        self.answer: object = None
        self.reply: Reply | None = None
        self.payloads: list[str] = []
        # When the last message to the server and to the client arrives.
        self.sent = self.answered = 0.0

    @property
    def usable(self) -> bool:
        """Return whether it is open, outside a transaction, and without an outstanding answer."""
        ok = not (self.closed or self.over or self.reply_pending) and self.session is not None
        return ok and not self.session.in_transaction

    @property
    def resumable(self) -> bool:
        """Return whether a request that leaves no transaction was cancelled."""
        pending = self.reply_pending and self.session is not None
        return pending and self.complete and not (self.closed or self.over)

    def now(self) -> float:
        """Return the time on the machine's clock."""
        return self.network.machine.now()

    def fresh(self) -> bool:
        """Return whether it is usable, according to the client's kernel."""
        return self.usable

    def fileno(self) -> int:
        """Simulated connections have no descriptors."""
        return 0

    def handle(
        self, machine: Machine, call: Call[Any], wanted: Callable[[], bool], reply: Reply
    ) -> None:
        """Execute a request."""
        request = call.request
        if not wanted():
            return
        if self.closed or self.over:
            reply(OutcomeUnknown("the connection was lost"))
        elif isinstance(request, Connect):
            self._connect(call.until, reply)
        elif isinstance(request, AwaitNotification):
            self._await_notification(call.until, reply)
        else:
            self._statements(request, call.until, reply)

    def _connect(self, until: float, reply: Reply) -> None:
        network = self.network
        takes, left = 2 * network.delay(), max(0.0, until - network.machine.now())
        if takes > left:
            network.simulator.after(left, lambda: reply(NotApplied("no connection in time")))
        else:
            network.simulator.after(takes, lambda: self._connected(reply))

    def _connected(self, reply: Reply) -> None:
        if self.closed or not self.network.machine.alive:
            return
        self.session = self.network.server.begin(self._ended, self._notified)
        self.number = self.session.number
        self.network.connections.append(self)
        reply(None)

    def _statements(self, request: object, until: float, reply: Reply) -> None:
        if isinstance(request, (Execute, Send)):
            self.reply_pending, self.answer = True, None
            if self.network.happens(self.network.simulator.faults.lost_request):
                self.lose()
            server, session = self.network.server, self.session
            self.to_server(lambda: server.execute(session, request.text, self._answered))
        if isinstance(request, Send):
            reply(None)
            return
        assert isinstance(request, (Execute, Receive))
        self.reply = reply
        if self.answer is not None:
            self._finish(self.answer)
        self.network.after(until, lambda: self._too_late(reply, OutcomeUnknown("no answer")))

    def _await_notification(self, until: float, reply: Reply) -> None:
        self.reply = reply
        if self.payloads:
            self._notify()
        self.network.after(until, lambda: self._too_late(reply, []))

    def _too_late(self, reply: Reply, outcome: object) -> None:
        if self.reply is reply:
            self.reply, self.complete = None, False
            reply(outcome)

    def _finish(self, outcome: object) -> None:
        reply, self.reply = self.reply, None
        if reply is not None:
            reply(outcome)

    def to_server(self, arrive: Callable[[], None]) -> None:
        """Send a message; it does not overtake an earlier one."""
        self.sent = self._travel(self.sent, arrive)

    def to_client(self, arrive: Callable[[], None]) -> None:
        """Send a message in the other direction."""
        self.answered = self._travel(self.answered, arrive)

    def _travel(self, earlier: float, arrive: Callable[[], None]) -> float:
        simulator = self.network.simulator
        at = max(simulator.time + self.network.delay(), earlier + TICK)
        simulator.after(at - simulator.time, lambda: arrive() if self.whole else None)
        return at

    def lose(self) -> None:
        """Discard all further messages."""
        if self.whole:
            self.whole = False
            self.network.simulator.after(KEEPALIVE, self._keepalive_failed)

    def _keepalive_failed(self) -> None:
        self.network.server.end(self.session)
        self._seen()

    def _answered(self, results: object) -> None:
        """Deliver an answer of the server."""
        if self.network.happens(self.network.simulator.faults.lost_reply):
            self.lose()
        self.to_client(lambda: self._received(results))

    def _received(self, results: object) -> None:
        self.reply_pending, self.answer = False, results
        if isinstance(results, SqlError):
            # A copy, because its traceback would keep a process alive.
            self.answer = SqlError(results.state, results.text)
        self._finish(self.answer)

    def _notified(self, payload: str) -> None:
        """Deliver a notification of the server."""
        if self.network.happens(self.network.simulator.faults.lost_message / 4):
            self.lose()
        self.to_client(lambda: self._heard(payload))

    def _heard(self, payload: str) -> None:
        self.payloads.append(payload)
        if self.reply is not None and not self.reply_pending:
            self._notify()

    def _notify(self) -> None:
        payloads, self.payloads = self.payloads, []
        self._finish(payloads)

    def _ended(self) -> None:
        """Send the end of the session to the client."""
        self.to_client(self._seen)

    def _seen(self) -> None:
        """Record that the client's kernel has noticed the end."""
        if not self.over and self.network.machine.alive:
            self.over = True
            self._finish(OutcomeUnknown("the connection was lost"))
            for watcher in self.network.watchers:
                watcher.disconnected(self)

    def end_session(self) -> None:
        """Notify the server of the end of the connection."""
        if self.session is not None:
            self.to_server(lambda: self.network.server.end(self.session))

    def cut(self) -> None:
        """End the connection on the client's side, if the machine is alive."""
        if self.network.machine.alive and not self.closed:
            self.over = True
            self.end_session()
            self._finish(OutcomeUnknown("the connection was cut"))

    def close(self) -> None:
        """Close the connection."""
        self.cut()
        self.closed = True

    def after_fork(self) -> None:
        """Abandon the connection, which belongs to the parent."""


class SimulatedWatcher:
    """Watches for the end of a client's connections."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self.sessions: list[SessionConnection] = []
        self.ended: list[SessionConnection] = []
        self.woken = False
        self.reply: Reply | None = None
        network.watchers.append(self)

    def add(self, session: SessionConnection) -> None:
        """Watch a session."""
        self.sessions.append(session)
        if getattr(session.connection, "over", False):
            self.disconnected(session.connection)

    def remove(self, session: SessionConnection) -> None:
        """Stop watching a session."""
        if session in self.sessions:
            self.sessions.remove(session)

    def disconnected(self, connection: object) -> None:
        """Record the end of a connection."""
        for session in [found for found in self.sessions if found.connection is connection]:
            self.sessions.remove(session)
            self.ended.append(session)
            self.wake()

    def wake(self) -> None:
        """End a wait."""
        self.woken = True
        reply, self.reply = self.reply, None
        if reply is not None:
            ended, self.ended, self.woken = self.ended, [], False
            reply(ended)

    def handle(
        self, machine: Machine, call: Call[Any], wanted: Callable[[], bool], reply: Reply
    ) -> None:
        """Wait for sessions to end."""
        self.reply = reply
        if self.woken:
            self.wake()
        self.network.after(call.until, lambda: self._too_late(reply))

    def _too_late(self, reply: Reply) -> None:
        if self.reply is reply:
            self.reply = None
            reply([])

    def close(self) -> None:
        """Do nothing."""

    after_fork = close


def simulated_store(network: Network) -> SqlStore:
    """The store of one machine."""
    target = Target("postgres", "db", None, None, None, "", {}, "db", session=SESSION_TIMEOUT)
    store = SqlStore(
        target,
        network.machine.now,
        # The simulator's driver calls `handle` in place of `call`.
        lambda: cast("Any", SimulatedConnection(network)),
        lambda: SimulatedWatcher(network),
    )
    store.lease.head = HEAD
    use_names(store)
    return store


def use_names(store: SqlStore) -> None:
    """Let a store send statements by name."""
    dialect = ByName(*dialect_of("postgres"))
    dialect = dialect._replace(preparable={})
    store.pool.dialect = store.pool.server.dialect = dialect
    store.lease.dialect = store.sessions.locks.dialect = dialect
