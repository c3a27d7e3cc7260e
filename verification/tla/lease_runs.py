"""Runs of the simulator, projected to the variables of `lease.tla`.

The run is that of the scenario `memory`: the production text of the client, with
`_core/rows/rules.py` as the store. What the simulator does with it is recorded as events: a client
begins a request, the store carries one out (with the state of the lock after it), a client gets the
answer or stops waiting for it. The projection decides nothing: whether the events are a behaviour
of the model is for TLC to say (`trace_lease.tla`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from verification.models.sqlite_model import Model
from verification.simulation.scenarios import MemoryScenario
from verification.tla.projection import NAME, TICKS, Recorded, ticks

from leaselock._backends.memory.store import CAPABILITIES
from leaselock._core.client.hold import State
from leaselock._core.contract.backend import Acquire, Busy, Grant, Release, Renew
from leaselock._core.rows.queue import NodeBackend, QueueBackend
from leaselock._core.rows.rules import NEVER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from verification.simulation.simulator import Machine

    from leaselock._core.contract.backend import Claim


class Sent(NamedTuple):
    """One claim of one request, as the model identifies its message."""

    client: str
    number: int
    op: str
    start: int

    def fields(self) -> dict[str, object]:
        """The fields of an event that select the message."""
        return {"c": self.client, "k": self.number, "op": self.op, "start": self.start}


class Recorder:
    """The events of one run."""

    def __init__(self, scenario: TracedScenario) -> None:
        self.scenario = scenario
        self.recorded: list[dict[str, object]] = []
        # By the id of a claim: the machine, and its number among the machine's claims.
        self.numbers: dict[str, tuple[str, int]] = {}
        self.latest: dict[str, Claim] = {}
        # Claims that the renewer releases in the background.
        self.later: set[str] = set()
        # Requests by identity; each is kept, so that no identity is used again.
        self.requests: dict[int, tuple[object, list[Sent]]] = {}
        self.done = False

    def events(self) -> list[dict[str, object]]:
        """What has happened."""
        return self.recorded

    def add(self, kind: str, **fields: object) -> None:
        """Record an event, and what every client believes now."""
        if not self.done:
            now = ticks(self.scenario.simulator.time)
            believed = frozenset(self._believed(now))
            self.recorded.append({"kind": kind, "at": now, "believed": believed, **fields})

    def _believed(self, now: int) -> Iterator[tuple[str, int, int]]:
        for registry in self.scenario.judge.registry.values():
            for hold in list(registry.table.values()):
                if hold.state is State.HELD:
                    valid = ticks(hold.valid_until)
                    if valid > now:
                        yield (*self.numbers[hold.claim.id], valid)

    def send(self, machine: str, request: Acquire | Release | Renew) -> list[Sent]:
        """A client begins a request."""
        sent: list[Sent] = []
        if isinstance(request, Acquire):
            sent = [self._ask(machine, request)]
        elif isinstance(request, Renew):
            sent = [self._renew(machine, claim) for claim in request.claims]
        else:
            sent = [self._release(machine, request)]
        self.requests[id(request)] = request, sent
        return sent

    def _message(self, claim: Claim, op: str) -> Sent:
        return Sent(*self.numbers[claim.id], op, ticks(self.scenario.simulator.time))

    def _ask(self, machine: str, request: Acquire) -> Sent:
        claim = request.claim
        if claim.id in self.numbers:
            self.add("ask", c=machine)
            return self._message(claim, "ask")
        before = self.latest.get(machine)
        if before is not None:
            self._perhaps_later(machine, before)
        number = self.numbers[before.id][1] + 1 if before is not None else 1
        self.numbers[claim.id], self.latest[machine] = (machine, number), claim
        self.add("claim", c=machine, wait=request.wait, lease=ticks(claim.lease))
        return self._message(claim, "ask")

    def _renew(self, machine: str, claim: Claim) -> Sent:
        self.add("renew", c=machine, lease=ticks(claim.lease))
        return self._message(claim, "renew")

    def _release(self, machine: str, request: Release) -> Sent:
        claim = request.claim
        if claim.id not in self.later and not self._perhaps_later(machine, claim):
            self.add("release", c=machine, tomb=request.tombstone)
        return self._message(claim, "release")

    def _perhaps_later(self, machine: str, claim: Claim) -> bool:
        """Record that the client gave the release of a claim to its renewer, if it did."""
        hold = self.scenario.judge.registry[machine].table.get(claim.id)
        pending = hold is not None and bool(hold.release_until)
        if pending and claim.id not in self.later:
            self.later.add(claim.id)
            self.add("later", c=machine)
        return pending

    def arrive(self, request: object, answer: object) -> None:
        """The store has carried out a request."""
        entry = self.scenario.model.table.entries[NAME]
        holds = frozenset(
            (*self.numbers[h.id], ticks(h.expires), h.offered) for h in entry.holds.values()
        )
        queue = tuple(
            (
                *self.numbers[c.id],
                ticks(c.last_seen),
                ticks(c.lease),
                c.last_seen >= entry.lapsed_offer,
            )
            for c in entry.queue.values()
        )
        for number, sent in enumerate(self.requests[id(request)][1]):
            said = answered(sent.op, answer, number)
            self.add("arrive", **sent.fields(), answer=said, holds=holds, queue=queue)

    def end(self, sent: list[Sent], kind: str) -> None:
        """A client has its answer, or stops waiting for it."""
        for message in sent:
            ident = next(i for i, numbers in self.numbers.items() if numbers == message[:2])
            # The model does not wait for a release in the background: it is repeated.
            if message.op != "release" or ident not in self.later or self._began_before(message):
                self.add(kind, **message.fields())

    def _began_before(self, message: Sent) -> bool:
        """Whether the user released the claim before that was left to the renewer."""
        return any(
            (event["kind"], event["c"], event["at"]) == ("release", message.client, message.start)
            for event in self.recorded
        )


def answered(op: str, answer: Any, number: int) -> str:
    """What the model calls an answer."""
    if op == "release":
        return "released"
    if op == "renew":
        return "held" if answer[number] else "lost"
    if isinstance(answer, Grant):
        return "held"
    assert isinstance(answer, Busy)
    return "refused" if answer.retry_after == NEVER and answer.held is None else "busy"


class TracedModel(Model):
    """The store, with a clock that has whole ticks."""

    recorder: Recorder

    def ask(self, machine: str, request: Any, reply: Callable[[object], None]) -> None:
        """Execute a request, and record what it did."""
        if not isinstance(request, (Acquire, Release, Renew)):
            super().ask(machine, request, reply)
            return

        def replied(answer: object) -> None:
            self.recorder.arrive(request, answer)
            reply(answer)

        super().ask(machine, request, replied)


class TracedQueue(NodeBackend):
    """The client's side of the requests."""

    def __init__(self, machine: str, recorder: Recorder) -> None:
        super().__init__(CAPABILITIES, "store", "listener")
        self.machine, self.recorder = machine, recorder

    async def send(self, request: Any, until: float) -> Any:
        """Send a request, and record its begin and its end."""
        if not isinstance(request, (Acquire, Release, Renew)):
            return await super().send(request, until)
        sent = self.recorder.send(self.machine, request)
        try:
            reply = await super().send(request, until)
        except BaseException:
            self.recorder.end(sent, "unanswered")
            raise
        self.recorder.end(sent, "reply")
        return reply

    # By `send`, which records them, and not by a call of their own.
    acquire = QueueBackend.acquire
    release = QueueBackend.release


class TracedScenario(Recorded, MemoryScenario):
    """The scenario whose runs the model must accept."""

    recorder: Recorder

    def make_recorder(self) -> Recorder:
        """Make the recorder."""
        return Recorder(self)

    def make_model(self) -> TracedModel:
        """Make the store."""
        model = TracedModel(lambda: ticks(self.simulator.time) / TICKS, self._micros)
        model.recorder = self.recorder
        return model

    def make_backend(self, machine: Machine) -> TracedQueue:
        """Make the backend of a machine."""
        return TracedQueue(machine.name, self.recorder)
