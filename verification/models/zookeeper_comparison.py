"""Comparison of a real ZooKeeper with its model: the same batches, then the same nodes and events.

What the library would send is sent to both, and only then does the library get a reply, the
model's. Each server has its own numbers of transactions and sessions; those of the two must
correspond, in the same order. The clock is the test's own, because nothing here ends by time: a
session ends when the test ends it, on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from testkit.proxy import Proxy
from testkit.servers.process import eventually
from verification.models.zookeeper_clients import Client, Stub, asker, is_of_node, process_of
from verification.models.zookeeper_model import Model

from leaselock._backends.zookeeper.layout_marker import marker_path
from leaselock._backends.zookeeper.paths import path_of
from leaselock._backends.zookeeper.queue import QueueBackend
from leaselock._backends.zookeeper.queue_order import KAZOO
from leaselock._backends.zookeeper.requests import (
    WRITES,
    AwaitEvents,
    Batch,
    BatchResult,
    Children,
    Connect,
    CreateSequential,
    Delete,
    EnsurePath,
    Node,
    Read,
)
from leaselock._backends.zookeeper.single import SingleBackend
from leaselock._core.contract.backend import WAKE_ALL
from leaselock._core.contract.effects import Call, Spawn
from leaselock._drivers import system_env
from leaselock.errors import LeaselockError, OutcomeUnknown, StoreError

if TYPE_CHECKING:
    from testkit.servers.zookeeper import Ensemble

    from leaselock._core.contract.backend import Claim

MARKER = marker_path("/")[1:]
SESSION = 20.0
REPLY_TIMEOUT = 20.0
# Another program.
STRANGER = "stranger"


class ZooComparison:
    """Both servers, and the clients of both."""

    queues, votes = True, False
    leases: tuple[float, ...] = (0.5, 2.0, 30.0)
    pause = 0.0

    def __init__(self, ensemble: Ensemble, witness: Any, root: str, protocols: list[str]) -> None:
        self.time = 1000.0
        self.witness, self.root, self.protocols = witness, root, protocols
        self.hosts = ensemble.hosts
        self.proxy = Proxy(ensemble.servers[0].port)
        self.url = f"zookeeper://127.0.0.1:{self.proxy.port}{root}?timeout={SESSION}"
        self.model = Model(self.now, lambda _, then: None, lambda name: True, SESSION)
        self.clients: dict[str, Client] = {}
        self.sessions = {0: 0}
        self.tokens: dict[int, int] = {}
        self.events = 0

    def now(self) -> float:
        """The time of the library and of the model."""
        return self.time

    def client(self, name: str) -> Client:
        """The client of that name; the clients use the protocols in turn."""
        if name not in self.clients:
            single = self.protocols[len(self.clients) % len(self.protocols)] == "single"
            stub: Any = Stub(SESSION)
            one = SingleBackend(stub, self.root, self.now)
            many = QueueBackend(stub, self.root, KAZOO, self.now)
            client = self.clients[name] = Client(self.url, one if single else many)
            self.model.receivers[name] = client.modelled_events.append
        return self.clients[name]

    # --- the library ----------------------------------------------------------------------------

    def ask(self, request: object) -> object:
        """Its answer to a request, or its error."""
        name = asker(request)
        try:
            process = process_of(self.client(name).backend, request, self.time + REPLY_TIMEOUT)
            answer = self._run(name, process)
            self._hear(name)
            return answer
        except LeaselockError as error:
            return error

    def _run(self, name: str, process: Any, answer: object = None) -> object:
        """Run a process until it waits for events and there are none, or to its end."""
        client = self.clients[name]
        try:
            while True:
                failed = isinstance(answer, Exception)
                effect = process.throw(answer) if failed else process.send(answer)
                if isinstance(effect, Call) and isinstance(effect.request, AwaitEvents):
                    client.listeners.append((process, effect.until))
                    self._hear(name)
                    return None
                answer = self._done(name, effect)
        except StopIteration as done:
            return done.value

    def _done(self, name: str, effect: object) -> object:
        if isinstance(effect, Spawn):
            return self._run(name, effect.operation)
        assert isinstance(effect, Call), effect
        return self.handle(name, effect.request)

    def _hear(self, name: str) -> None:
        """Give the events in the mailbox to the process that waits for them."""
        client = self.clients[name]
        if client.backend.mailbox.events and client.listeners:
            (process, _), *client.listeners = client.listeners
            self._run(name, process, client.backend.mailbox.take())

    def forget(self, claim: Claim) -> None:
        """The claim does not wait any more."""
        self.client(claim.client).backend.forget(claim)

    def pass_time(self, seconds: float) -> None:
        """Waits for events end at their deadline."""
        self.time += seconds
        for name, client in self.clients.items():
            due = [one for one in client.listeners if one[1] <= self.time]
            for one in due:
                client.listeners.remove(one)
                self._run(name, one[0], ())

    # --- execution on both sides ----------------------------------------------------------------

    def handle(self, name: str, batch: Any) -> object:
        """Send the same batch to both; return the reply for the library."""
        client = self.clients[name]
        fault, client.fault = client.fault, ""
        if fault:
            return self._cut(name, batch, fault)
        model = self._model(name, batch)
        real = self._really(client, batch)
        self._same(batch, real, model)
        self._compare()
        return model

    def _model(self, name: str, batch: Batch) -> object:
        client, results = self.clients[name], list[object]()
        client.sent += 1
        self.model.ask(name, client.sent, batch, results.append)
        return results[0]

    def _really(self, client: Client, batch: Batch) -> object:
        theirs = batch._replace(session=self.sessions[batch.session])
        until = system_env.now() + REPLY_TIMEOUT
        try:
            if not client.connection.online:
                client.connection.call(Connect(), until)
            return client.connection.call(theirs, until)
        except StoreError as error:
            return error

    def _cut(self, name: str, batch: Batch, fault: str) -> OutcomeUnknown:
        """The connection is lost with the request or with the reply; the session continues."""
        client, (first, *_) = self.clients[name], batch.operations
        writes = [operation for operation in batch.operations if isinstance(operation, WRITES)]
        alone = writes == [first] and not isinstance(first, EnsurePath)
        self._really(client, Batch((Read(self.root),), 0))  # so that there is a connection
        # The fault is for this request, not for those of the layout marker.
        eventually(lambda: client.connection.marker.running is None)
        action = fault if alone else "cut"
        self.proxy.plan(action, self.root.encode())
        assert not client.heard()
        real = self._really(client, batch)
        assert isinstance(real, OutcomeUnknown), (batch, real)
        done = batch._replace(operations=(first,) if action == "cut_reply" else ())
        self._model(name, done)
        client.modelled_events.clear()  # with the reply, over the connection that is lost
        self.model.cut(name)
        ours = self.model.sessions[name].number
        assert self.sessions.setdefault(ours, client.connection.session)
        eventually(lambda: WAKE_ALL in client.mailbox.events)
        self._compare()
        return real

    def _same(self, batch: Batch, real: object, model: object) -> None:
        if not isinstance(model, BatchResult) or not isinstance(real, BatchResult):
            assert type(real) is type(model), (batch, real, model)
            return
        assert self.sessions.setdefault(model.session, real.session) == real.session
        assert real.timeout == model.timeout
        for operation, one, other in zip(
            batch.operations, real.replies, model.replies, strict=True
        ):
            if not isinstance(operation, EnsurePath):
                assert self._plain(one, False) == self._plain(other, True), (operation, one, other)

    def _plain(self, answer: object, ours: bool) -> object:
        """A reply without the server's own numbers; names come in any order."""
        if isinstance(answer, Children):
            return sorted(name for name in answer.names if name != MARKER)
        if not isinstance(answer, Node) or not ours:
            return answer._replace(created=0.0) if isinstance(answer, Node) else answer
        return self._theirs(answer)

    def _theirs(self, node: Node) -> Node:
        """A node of the model with the numbers of the real one, which are looked up once."""
        if node.token not in self.tokens:
            _, stat = self.witness.get(node.path)
            self.tokens[node.token] = stat.czxid
        if node.written not in self.tokens:
            _, stat = self.witness.get(node.path)
            self.tokens[node.written] = stat.mzxid
        session, numbers = self.sessions[node.session], self.tokens
        token, written = numbers[node.token], numbers[node.written]
        return node._replace(token=token, session=session, created=0.0, written=written)

    def _compare(self) -> None:
        """Both have the same nodes, and have sent the same events to each client."""
        nodes = [n for n in self.model.tree.nodes.values() if n.path.startswith(self.root)]
        ours = {node.path: self._theirs(node) for node in nodes}
        assert dict(self._below(self.root)) == ours
        order = [self.tokens[token] for token in sorted(self.tokens)]
        assert order == sorted(order)
        for name in list(self.clients):
            self._compare_events(name)

    def _below(self, path: str) -> list[tuple[str, Node]]:
        if not self.witness.exists(path):
            return []
        data, stat = self.witness.get(path)
        node = Node(path, stat.czxid, stat.ephemeralOwner, 0.0, data, stat.mzxid, stat.version)
        children = [name for name in self.witness.get_children(path) if name != MARKER]
        parts = [self._below(f"{path}/{child}") for child in children]
        return [(path, node), *(one for part in parts for one in part)]

    def _compare_events(self, name: str) -> None:
        client = self.clients[name]
        if name not in self.model.sessions:
            return
        # A server sends its events before it replies.
        self._really(client, Batch((Read(self.root),), 0))
        expected, client.modelled_events[:] = list(client.modelled_events), ()
        events = [event for event in expected if is_of_node(event)]
        assert sorted(client.heard()) == sorted(events), name
        self.events += len(events)
        for event in expected:
            client.backend.mailbox.put(event)
        self._hear(name)

    # --- faults ---------------------------------------------------------------------------------

    def lose(self, client: str, fault: str) -> None:
        """The next request of a client, or its reply, is lost with the connection."""
        self.client(client).fault = fault

    def end_session(self, name: str) -> None:
        """The session ends while its client lives, as after a long silence."""
        if name not in self.model.sessions:
            return
        client = self.clients[name]
        connection, old = client.connection, client.connection.session
        session = connection.client.client_id

        def ended() -> bool:
            if connection.session == old and connection.online:
                # The client may reconnect and take its session back before the thief ends it.
                thief = KazooClient(self.hosts, client_id=session)
                thief.start()
                thief.stop()
                thief.close()
            return connection.session not in (0, old) and connection.online

        eventually(ended)
        self.model.expire(name)
        self._compare()

    def die(self, client: str) -> None:
        """The client ends its session."""
        if client not in self.clients:
            return
        self.clients.pop(client).close()
        self.model.die(client)
        if client in self.model.sessions:
            self.model.expire(client)
        self._compare()

    def stranger(self, name: str) -> None:
        """Another program enters the queue of a lock, as kazoo does, or leaves it."""
        self.client(STRANGER)
        path = path_of(self.root, name)
        there = [p for p in self.model.tree.nodes if p.startswith(f"{path}/{STRANGER}")]
        enter = (EnsurePath(path), CreateSequential(f"{path}/{STRANGER}{KAZOO}", b"kazoo"))
        self.handle(STRANGER, Batch(tuple(map(Delete, there)) or enter, 0))

    def heard(self) -> int:
        """The number of events, which is the same on both sides."""
        return self.events

    def close(self) -> None:
        """End all sessions."""
        for client in self.clients.values():
            client.close()
        self.proxy.stop()
