"""Runs of the simulator, projected to the variables of `document.tla`.

The run is that of the scenario `document`: the client's production text, on the simulated store.
What the client sends, what the store does with it, and what the client hears of it are recorded as
events. The projection decides nothing: whether the events are a behaviour of the model is for TLC
to say (`trace_document.tla`).

In the model a request reads and decides in one step. So what was read counts from when the store
carried out the read, if the client has used it; a write counts from when the client has decided,
and is left out if its version was not the present one: the store refuses it. Of the answers
without a write, those count that end a claim or begin it.

One lock, one length of leases and one user per machine; no crash, no break, and no claim beside the
release of another one in the background: these the model does not have. Where a client writes a
renewal beside a release of its own, the run ends: in the model a client has one request at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from verification.simulation.document import Documents, DocumentScenario, Listening
from verification.simulation.simulator import EPOCH
from verification.simulation.user import User
from verification.tla.projection import NAME, Members, Recorded, ticks

from leaselock._backends.document.adapter import Conflict, Get
from leaselock._backends.document.backend import OUTRUN, DocumentBackend
from leaselock._backends.document.content import encoded
from leaselock._backends.document.engine import Engine
from leaselock._core.client.hold import State
from leaselock._core.contract.backend import Acquire, Release, Renew
from leaselock._core.contract.effects import Sleep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.simulation.simulator import Machine

    from leaselock._backends.document.adapter import Changed, Found
    from leaselock._backends.document.content import Content
    from leaselock._core.client.client_core import ClientCore

LEASE = 2.0
# Later than any run: the stamp of a hold that has none, too.
EVER = 1 << 30
SETTLED = 0.05


class Slot:
    """An event at its place; it has happened only if it is filled."""

    def __init__(self, at: int, believed: frozenset[tuple[str, int, int]], number: int) -> None:
        self.event: dict[str, Any] = {"at": at, "believed": believed}
        # The number of the document's last write.
        self.number = number

    def fill(self, kind: str, **fields: object) -> None:
        """It has happened."""
        self.event |= {"kind": kind, **fields}


class Operation:
    """One request of a client."""

    def __init__(self, op: str, claim: tuple[str, int]) -> None:
        self.op = op
        self.claim = claim
        # Where an answer without a write would be: after what was read last.
        self.answer: Slot | None = None


class Write:
    """One write of a client."""

    def __init__(self, machine: str, op: str, current: bool) -> None:
        self.machine = machine
        self.op = op
        # Whether the model has it: it was decided on the present document, and nothing else has
        # begun since.
        self.counts = current
        # After it was carried out.
        self.after: Slot | None = None


class Recorder:
    """The events of one run."""

    def __init__(self, scenario: TracedDocumentScenario) -> None:
        self.scenario = scenario
        self.slots: list[Slot] = []
        # By the id of a claim: the machine, and its number among the machine's claims.
        self.numbers: dict[str, tuple[str, int]] = {}
        self.claims: dict[str, int] = {}
        # The latest claim of each machine, and all that were released.
        self.latest: dict[str, str] = {}
        self.over: set[str] = set()
        self.operations: dict[tuple[str, str], Operation] = {}
        # What was read, and the slots for it; it is kept, so that no identity is used again.
        self.read: dict[int, tuple[Found, Slot, Slot]] = {}
        self.writes: dict[str, Write] = {}
        self.in_flight: dict[str, Write] = {}
        # The number before the first write of the document.
        self.base: int | None = None
        self.done = False

    # --- events

    def slot(self) -> Slot:
        """The place for an event now."""
        now = self.scenario.simulator.time
        document = self.scenario.model.parsed.get(NAME)
        number = 0 if document is None else document["n"]
        slot = Slot(ticks(now), frozenset(self._believed(now)), number)
        if not self.done:
            self.slots.append(slot)
        return slot

    def add(self, kind: str, **fields: object) -> None:
        """Record an event, and what every client believes now."""
        self.slot().fill(kind, **fields)

    def events(self) -> list[dict[str, object]]:
        """What has happened. Left out is a look that is answered, if its client has done nothing
        since it was answered the same from the same document: the polling of waiters.
        """
        events: list[dict[str, object]] = []
        answered: dict[str, tuple[int, int]] = {}
        for slot in self.slots:
            if "kind" not in slot.event:
                continue
            kind, client = slot.event["kind"], slot.event["c"]
            if kind == "see":
                events.append(slot.event)
                continue
            if kind == "answer" and slot.event["op"] == "acquire":
                answer = (slot.event["k"], slot.number)
                looked = events and (events[-1]["kind"], events[-1]["c"]) == ("see", client)
                if looked and answered.get(client) == answer:
                    events.pop()
                    continue
                answered[client] = answer
            else:
                answered.pop(client, None)
            events.append(slot.event)
        return events

    def _believed(self, now: float) -> Iterator[tuple[str, int, int]]:
        for name, registry in self.scenario.judge.registry.items():
            rate = self.scenario.judge.machines[name].rate
            for hold in list(registry.table.values()):
                if hold.state is State.HELD and hold.valid_until / rate > now:
                    yield (*self.numbers[hold.claim.id], ticks(hold.valid_until / rate))

    def _projected(self, document: dict[str, Any], base: int) -> dict[str, object]:
        usual = {"mode": "exclusive", "permits": 1}
        holds = [
            {
                "id": self.numbers[held["id"]],
                **usual,
                "step": 0,
                "offered": held.get("offered", False),
                "beat": held["beat"] - base,
                "lasts": ticks(round(held["lasts"], 3)),
                "free": -1,
                "stamp": stamp_of(held.get("stamp")),
                "since": 0,
            }
            for held in document["holds"]
        ]
        queue = tuple(
            {"id": self.numbers[claim["id"]], **usual, "last_seen": claim["beat"] - base}
            for claim in document["queue"]
        )
        return {
            "n": document["n"] - base,
            "absent": False,
            "holds": Members(holds),
            "queue": queue,
            "lapsed_offer": document["lapsed_offer"] and document["lapsed_offer"] - base,
        }

    # --- the client

    def begin(self, machine: str, request: Acquire | Release | Renew) -> Operation:
        """A client begins a request."""
        claim = request.claims[0] if isinstance(request, Renew) else request.claim
        if isinstance(request, Renew):
            operation = Operation("renew", self.numbers[claim.id])
            self.operations[machine, ""] = operation
            return operation
        self._supersede(machine)
        if claim.id not in self.numbers:
            assert isinstance(request, Acquire)
            if machine in self.latest and self.latest[machine] not in self.over:
                self.add("finish", c=machine)
            self.latest[machine] = claim.id
            self.claims[machine] = self.claims.get(machine, 0) + 1
            self.numbers[claim.id] = machine, self.claims[machine]
            self.add("claim", c=machine, k=self.claims[machine], wait=request.wait)
        op = "acquire" if isinstance(request, Acquire) else "release"
        operation = Operation(op, self.numbers[claim.id])
        self.operations[machine, claim.id] = operation
        return operation

    def _supersede(self, machine: str) -> None:
        """The model does not wait for messages in flight any more."""
        write = self.in_flight.pop(machine, None)
        if write is not None:
            write.counts = False
            self.add("unheard", c=machine)

    def end(self, operation: Operation, request: object, answer: object) -> None:
        """A client has its answer."""
        machine, number = operation.claim
        if isinstance(request, Release):
            self.over.add(request.claim.id)
        if answer is OUTRUN:
            self.add("outrun", c=machine, k=number)
        elif operation.answer is not None and operation.op != "renew":
            operation.answer.fill("answer", c=machine, k=number, op=operation.op)

    def learn(self, machine: str, asker: str | None, found: Found, write: Write | None) -> None:
        """A client has what it has read, or what a write was refused with."""
        _, seen, answer = self.read[id(found)]
        said = -1 if found.now is None else ticks(found.now - EPOCH)
        refused = write is not None and write.counts
        seen.fill("refused" if refused else "see", c=machine, said=said)
        if asker is not None:
            self.operations[machine, asker].answer = answer

    def write(self, engine: TracedEngine, asker: str, content: Content, version: object) -> Write:
        """A client has decided, and sends a write."""
        machine = engine.machine
        operation = self.operations[machine, asker]
        operation.answer = None
        present = self.scenario.model.documents.get(NAME, (None, None))[1]
        write = self.writes[f"{engine.writer}.{engine.writes + 1}"] = Write(
            machine, operation.op, present == version
        )
        other = self.in_flight.get(machine)
        if write.counts and operation.op == "renew" and other is not None and other.op != "renew":
            self.done, write.counts = True, False
        if write.counts:
            self._supersede(machine)
            self.in_flight[machine] = write
            base = content.n - 1 if self.base is None else self.base
            self.add(
                "put",
                c=machine,
                k=operation.claim[1],
                op=operation.op,
                stamp=stamp_of(engine.known.store_time()),
                doc=self._projected(json.loads(encoded(content)), base),
            )
        return write

    def written(self, write: Write, asker: str, found: Found | None, done: bool) -> None:
        """A client has the reply."""
        if done:
            if write.counts:
                self.add("heard", c=write.machine)
            elif write.after is not None:
                write.after.fill("see", c=write.machine, said=-1)
        elif found is not None:
            self.learn(write.machine, asker, found, write)
        elif write.counts:
            self.add("unheard", c=write.machine)
        self._landed(write)

    def unheard(self, write: Write) -> None:
        """A client does not wait for the reply any more."""
        if write.counts:
            self.add("unheard", c=write.machine)
        self._landed(write)

    def _landed(self, write: Write) -> None:
        if write.counts:
            del self.in_flight[write.machine]
        write.counts = False

    # --- the store

    def saw(self, found: Found) -> None:
        """The store has carried out a read, or refused a write."""
        self.read[id(found)] = found, self.slot(), self.slot()

    def stored(self, machine: str, document: dict[str, Any]) -> None:
        """The store has carried out a write."""
        if self.base is None:
            self.base = document["n"] - 1
        write = self.writes.get(document["by"])
        # The document is the one that was sent; if not, no step of the model is so.
        self.add("stored" if write else "foreign", c=machine, n=document["n"] - self.base)
        if write is not None:
            write.after = self.slot()


def stamp_of(stamp: float | None) -> int:
    """The stamp of a hold."""
    return EVER if stamp is None else ticks(stamp - EPOCH)


class TracedDocuments(Documents):
    """The store."""

    recorder: Recorder

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Carry out one request, and record what it did."""

        def replied(answer: Any) -> None:
            if isinstance(request, Get):
                self.recorder.saw(answer)
            elif isinstance(answer, Conflict) and answer.found is not None:
                self.recorder.saw(answer.found)
            reply(answer)

        # Before the listeners see what is there.
        self.granted = lambda name, before, document: self.recorder.stored(machine, document)
        super().ask(machine, request, replied)


class TracedListening(Listening):
    """The listeners."""

    store: TracedDocuments

    def _changes(self, versions: dict[str, Any]) -> list[Changed]:
        changes = super()._changes(versions)
        for change in changes:
            if change.found is not None:
                self.store.recorder.saw(change.found)
        return changes


class TracedEngine(Engine):
    """The requests of a client."""

    machine = ""
    recorder: Recorder

    async def read(self, name: str, until: float, asker: str) -> Found:
        """Read a document."""
        found = await super().read(name, until, asker)
        self.recorder.learn(self.machine, asker, found, None)
        return found

    async def write(
        self, name: str, content: Content, version: Any, until: float, asker: str
    ) -> tuple[Found | None, bool]:
        """Write a document."""
        write = self.recorder.write(self, asker, content, version)
        try:
            found, done = await super().write(name, content, version, until, asker)
        except BaseException:
            self.recorder.unheard(write)
            raise
        self.recorder.written(write, asker, found, done)
        return found, done


class TracedBackend(DocumentBackend):
    """The client's side."""

    engine_type = TracedEngine
    machine = ""
    recorder: Recorder

    async def _answer(self, request: Any, until: float) -> Any:
        if not isinstance(request, (Acquire, Release, Renew)):
            return await super()._answer(request, until)
        operation = self.recorder.begin(self.machine, request)
        answer = await super()._answer(request, until)
        self.recorder.end(operation, request, answer)
        return answer

    def _report(self, change: Changed) -> None:
        if change.found is not None and change.found.value is not None:
            self.recorder.learn(self.machine, None, change.found, None)
        super()._report(change)


class TracedUser(User):
    """A user whose claims follow one another."""

    scenario: TracedDocumentScenario

    async def _once(self) -> None:
        registry = self.scenario.judge.registry[self.machine.name]
        left = {hold.claim.id for hold in registry.pending()}
        while registry.pending():
            await Sleep(self.machine.now() + SETTLED)
        if left <= self.scenario.recorder.over:
            await super()._once()

    async def _tolerant(self, action: Callable[[], object]) -> None:
        """No extension: it is a renewal with a lease of another length."""


class TracedDocumentScenario(Recorded, DocumentScenario):
    """The scenario whose runs the model must accept."""

    backend = TracedBackend
    model: TracedDocuments
    recorder: Recorder

    def __init__(self, seed: int, traced: bool = False) -> None:
        super().__init__(seed, traced)
        self.leases = (LEASE,)
        # Whether it is right is for the model to say.
        self.simulator.check = lambda: None

    def make_recorder(self) -> Recorder:
        """Make the recorder."""
        return Recorder(self)

    def make_model(self) -> TracedDocuments:
        """Make the store."""
        made = super().make_model()
        model = TracedDocuments(self.simulator, made.current, made.clock)
        model.recorder = self.recorder
        return model

    def make_judge(self) -> Any:
        """Make the judge."""
        judge = super().make_judge()
        self.simulator.models = {"store": self.model, "listener": TracedListening(self.model)}
        return judge

    def make_backend(self, machine: Machine) -> DocumentBackend:
        """Make the backend of a machine."""
        backend = super().make_backend(machine)
        assert isinstance(backend, TracedBackend)
        assert isinstance(backend.engine, TracedEngine)
        backend.machine = backend.engine.machine = machine.name
        backend.recorder = backend.engine.recorder = self.recorder
        return backend

    def make_user(self, machine: Machine, service: ClientCore) -> User:
        """Make a user."""
        return TracedUser(self, machine, service)
