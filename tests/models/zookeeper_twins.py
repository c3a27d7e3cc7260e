"""A real ZooKeeper and its model, side by side: the same flights, then the same nodes and watches.

Law: what the library would send is sent to both, and only then does the library see an answer, the
model's. Transactions and sessions have numbers of each server's own; those of the two must belong
together, in the same order. Time is the test's own, for nothing here ends by time: a session ends
when the test ends it, on both sides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kazoo.client import KazooClient  # type: ignore[import-untyped]
from tests.models.zookeeper_clients import Client, asker, process_of
from tests.servers.process import eventually

from leaselock.backends.zookeeper import model as zookeeper
from leaselock.backends.zookeeper.flights import WRITES
from leaselock.backends.zookeeper.places import path_of
from leaselock.backends.zookeeper.queue import Queue
from leaselock.backends.zookeeper.requests import (
    Create,
    Delete,
    Ensure,
    Flight,
    Landed,
    Node,
    Poke,
    Read,
)
from leaselock.backends.zookeeper.single import Single
from leaselock.backends.zookeeper.turn import KAZOO
from leaselock.core.backend import WAKE_ALL, Listen
from leaselock.core.effects import Call, Spawn
from leaselock.drivers import system_env
from leaselock.errors import LeaselockError, OutcomeUnknown, StoreError
from leaselock.testing.proxy import Proxy

if TYPE_CHECKING:
    from tests.servers.zookeeper import Ensemble

    from leaselock.core.backend import Claim

SESSION = 20.0
ANSWERED = 20.0
# Another program.
STRANGER = "stranger"


class ZooTwins:
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
        self.model = zookeeper.Model(self.now, lambda _, then: None, lambda name: True, SESSION)
        self.clients: dict[str, Client] = {}
        self.sessions = {0: 0}
        self.tokens: dict[int, int] = {}
        self.told = 0

    def now(self) -> float:
        """The time of the library and of the model."""
        return self.time

    def client(self, name: str) -> Client:
        """That of a name; they speak the protocols in turn."""
        if name not in self.clients:
            single = self.protocols[len(self.clients) % len(self.protocols)] == "single"
            one = Single(self.root, SESSION, self.now)
            many = Queue(self.root, SESSION, KAZOO, self.now)
            self.clients[name] = Client(self.url, one if single else many)
        return self.clients[name]

    # --- the library ----------------------------------------------------------------------------

    def ask(self, request: object) -> object:
        """Its answer to a request, or its error."""
        name = asker(request)
        try:
            process = process_of(self.client(name).backend, request, self.time + ANSWERED)
            return self._run(name, process)
        except LeaselockError as error:
            return error

    def _run(self, name: str, process: Any, answer: object = None) -> object:
        """Play a process until it listens and there is nothing to hear, or to its end."""
        client = self.clients[name]
        try:
            while True:
                failed = isinstance(answer, Exception)
                effect = process.throw(answer) if failed else process.send(answer)
                if isinstance(effect, Call) and isinstance(effect.request, Listen):
                    client.listeners.append((process, effect.until))
                    self._hear(name)
                    return None
                answer = self._done(name, effect)
        except StopIteration as done:
            return done.value

    def _done(self, name: str, effect: object) -> object:
        if isinstance(effect, Spawn):
            return self._run(name, effect.process)
        assert isinstance(effect, Call), effect
        if isinstance(effect.request, Poke):
            self.clients[name].unheard.append(".")
            self._hear(name)
            return None
        return self.handle(name, effect.request)

    def _hear(self, name: str) -> None:
        """Who listens is told what there is; what comes while nobody does waits, as in a queue."""
        client = self.clients[name]
        if client.unheard and client.listeners:
            (process, _), *client.listeners = client.listeners
            self._run(name, process, (client.unheard.pop(0),))

    def forget(self, claim: Claim) -> None:
        """It waits no more."""
        self.client(claim.client).backend.forget(claim)

    def pass_time(self, seconds: float) -> None:
        """Whoever listens only for so long has heard nothing."""
        self.time += seconds
        for name, client in self.clients.items():
            due = [one for one in client.listeners if one[1] <= self.time]
            for one in due:
                client.listeners.remove(one)
                self._run(name, one[0], OutcomeUnknown("nothing was heard in time"))

    # --- both at once ---------------------------------------------------------------------------

    def handle(self, name: str, flight: Any) -> object:
        """The same on both; what the library is answered."""
        client = self.clients[name]
        fault, client.fault = client.fault, ""
        if fault:
            return self._cut(name, flight, fault)
        model: list[object] = []
        self.model.ask(name, flight, model.append)
        real = self._really(client, flight)
        self._same(flight, real, model[0])
        self._compare()
        return model[0]

    def _really(self, client: Client, flight: Flight) -> object:
        theirs = flight._replace(session=self.sessions[flight.session])
        try:
            return client.store.call(theirs, system_env.now() + ANSWERED)
        except StoreError as error:
            return error

    def _cut(self, name: str, flight: Flight, fault: str) -> OutcomeUnknown:
        """The connection is lost with the question, or with the answer; the session goes on."""
        client, (first, *_) = self.clients[name], flight.operations
        writes = [operation for operation in flight.operations if isinstance(operation, WRITES)]
        alone = writes == [first] and not isinstance(first, Ensure)
        self._really(client, Flight((Read(self.root),)))  # so that there is a connection
        action = fault if alone else "cut"
        self.proxy.plan(action, self.root.encode())
        client.words.clear()
        real = self._really(client, flight)
        assert isinstance(real, OutcomeUnknown), (flight, real)
        done = flight._replace(operations=(first,) if action == "cut_reply" else ())
        self.model.ask(name, done, lambda answer: None)
        self._told(name)  # with the answer, on the connection that is lost
        self.model.cut(name)
        ours = self.model.sessions[name].number
        assert self.sessions.setdefault(ours, client.store.session.number)
        eventually(lambda: WAKE_ALL in client.words)
        self._compare()
        return real

    def _same(self, flight: Flight, real: object, model: object) -> None:
        if not isinstance(model, Landed) or not isinstance(real, Landed):
            assert type(real) is type(model), (flight, real, model)
            return
        assert self.sessions.setdefault(model.session, real.session) == real.session
        assert real.timeout == model.timeout
        for operation, one, other in zip(
            flight.operations, real.answers, model.answers, strict=True
        ):
            if not isinstance(operation, Ensure):
                assert self._plain(one, False) == self._plain(other, True), (operation, one, other)

    def _plain(self, answer: object, ours: bool) -> object:
        """An answer without what is each server's own; names come in any order."""
        if isinstance(answer, tuple) and not isinstance(answer, Node):
            return sorted(answer)
        if not isinstance(answer, Node) or not ours:
            return answer._replace(created=0.0) if isinstance(answer, Node) else answer
        return self._theirs(answer)

    def _theirs(self, node: Node) -> Node:
        """A node of the model's with the real one's numbers; one not seen before is looked up."""
        if node.token not in self.tokens:
            _, stat = self.witness.get(node.path)
            self.tokens[node.token] = stat.czxid
        session = self.sessions[node.session]
        return node._replace(token=self.tokens[node.token], session=session, created=0.0)

    def _compare(self) -> None:
        """The same nodes on both; and every client has been told the same of them."""
        nodes = [n for n in self.model.tree.nodes.values() if n.path.startswith(self.root)]
        ours = {node.path: self._theirs(node) for node in nodes}
        assert dict(self._below(self.root)) == ours
        order = [self.tokens[token] for token in sorted(self.tokens)]
        assert order == sorted(order)
        for name in list(self.clients):
            self._compare_words(name)

    def _below(self, path: str) -> list[tuple[str, Node]]:
        if not self.witness.exists(path):
            return []
        data, stat = self.witness.get(path)
        node = Node(path, stat.czxid, stat.ephemeralOwner, 0.0, data)
        parts = [self._below(f"{path}/{child}") for child in self.witness.get_children(path)]
        return [(path, node), *(one for part in parts for one in part)]

    def _compare_words(self, name: str) -> None:
        client = self.clients[name]
        if name not in self.model.sessions:
            return
        # A server tells what it knows before it answers.
        self._really(client, Flight((Read(self.root),)))
        told = self._told(name)
        said = [word for word in told if word != WAKE_ALL]
        assert sorted(client.heard()) == sorted(said), name
        self.told += len(said)
        client.unheard += told
        self._hear(name)

    def _told(self, name: str) -> list[str]:
        """What the model has told a client since the last time."""
        told: list[Any] = []
        self.model.ask(name, Listen(name), told.append)
        self.model.ears.pop(name, None)
        return [word for words in told for word in words]

    # --- what happens to them -------------------------------------------------------------------

    def lose(self, client: str, fault: str) -> None:
        """The next question of a client, or its answer, is lost with the connection."""
        self.client(client).fault = fault

    def end_session(self, name: str) -> None:
        """It ends while its client lives, as after a long silence."""
        if name not in self.model.sessions:
            return
        client = self.clients[name]
        session, old = client.store.session, client.store.session.number
        thief = KazooClient(self.hosts, client_id=session.client.client_id)
        thief.start()
        thief.stop()
        thief.close()
        eventually(lambda: session.number not in (0, old) and session.client.connected)
        self.model.expire(name)
        self._compare()

    def die(self, client: str) -> None:
        """It closes its session, or is gone."""
        if client not in self.clients:
            return
        self.clients.pop(client).close()
        self.model.die(client)
        if client in self.model.sessions:
            self.model.expire(client)
        self._compare()

    def stranger(self, name: str) -> None:
        """Another program queues for a lock, as kazoo does; or goes, if it did."""
        backend, path = self.client(STRANGER).backend, path_of(self.root, name)
        there = [p for p in self.model.tree.nodes if p.startswith(f"{path}/{STRANGER}")]
        comes = (Ensure(path), Create(f"{path}/{STRANGER}{KAZOO}", b"kazoo"))
        backend.flights += 1
        flight = Flight(tuple(map(Delete, there)) or comes, backend.flights)
        self.handle(STRANGER, flight)

    def heard(self) -> int:
        """How much was told of nodes, on both sides alike."""
        return self.told

    def close(self) -> None:
        """Hang up."""
        for client in self.clients.values():
            client.close()
        self.proxy.stop()
