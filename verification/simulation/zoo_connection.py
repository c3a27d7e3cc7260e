"""The connection of a simulated ZooKeeper client: the network, and what kazoo's thread does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock._backends.zookeeper.requests import AwaitEvents, Batch, Connect, Mailbox
from leaselock._core.contract.effects import FOREVER
from leaselock.errors import NotApplied, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable

    from verification.models.zookeeper_model import Model
    from verification.simulation.simulator import Machine

    from leaselock._core.contract.effects import Call


class SimulatedConnection:
    """What the backend has in place of a `BlockingConnection`."""

    closing = False

    def __init__(self, model: Model, machine: Machine) -> None:
        self.model = model
        self.machine = machine
        self.timeout = model.timeout
        self.mailboxes: list[Mailbox] = []
        self.sent = 0
        model.receivers[machine.name] = self._receive

    def __repr__(self) -> str:
        return "ZooKeeper"

    @property
    def connected(self) -> bool:
        """Whether a request can be sent now."""
        return self.model.is_connected(self.machine.name)

    def subscribe(self, mailbox: Mailbox) -> None:
        """Deliver every event to it from now on."""
        if mailbox not in self.mailboxes:
            self.mailboxes.append(mailbox)

    def unsubscribe(self, mailbox: Mailbox) -> None:
        """Stop delivering events to it, and forget those that it has."""
        if mailbox in self.mailboxes:
            self.mailboxes.remove(mailbox)
        mailbox.take()

    def _receive(self, event: str) -> None:
        def arrive() -> None:
            for mailbox in self.mailboxes:
                mailbox.put(event)

        self._after_delay(arrive)

    def _after_delay(self, action: Callable[[], None]) -> None:
        simulator = self.machine.simulator
        simulator.after(simulator.delay(simulator.faults), action)

    def handle(
        self,
        machine: Machine,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """Answer one call."""

        def answer(result: object) -> None:
            if wanted():
                reply(result)

        request: Any = call.request
        # The machine may have been frozen before it sent anything; a request that was cancelled
        # then is not sent, because a later one would overtake it.
        if not machine.alive or not wanted():
            return
        if isinstance(request, AwaitEvents):
            self._await_events(request.mailbox, call.until, answer)
            return
        if isinstance(request, Connect):
            self._at(call.until, lambda: answer(self._unreachable()))
            self.model.connect(machine.name, lambda _: self._after_delay(lambda: answer(None)))
        else:
            self._at(call.until, lambda: answer(OutcomeUnknown("no answer in time")))
            self._send(request, answer)

    def _unreachable(self) -> Exception:
        # Within a session, an earlier request of the same claim may have been executed.
        has_session = self.machine.name in self.model.sessions
        return (
            OutcomeUnknown("not connected")
            if has_session
            else NotApplied("not connected", "unreachable")
        )

    def _at(self, until: float, action: Callable[[], None]) -> None:
        if until < FOREVER:
            simulator = self.machine.simulator
            simulator.after(max(0.0, until / self.machine.rate - simulator.time), action)

    def _await_events(
        self, mailbox: Mailbox, until: float, answer: Callable[[object], None]
    ) -> None:
        def notify() -> None:
            if mailbox.notify is notify:
                mailbox.notify = None
                answer(mailbox.take())

        mailbox.notify = notify
        if mailbox.events:
            notify()
        else:
            self._at(until, notify)

    def _send(self, batch: Batch, answer: Callable[[object], None]) -> None:
        """A batch or its reply may be lost with the connection."""
        simulator, machine = self.machine.simulator, self.machine
        self.sent += 1
        number = self.sent
        if simulator.chance.random() < simulator.faults.lost_request:
            return

        def replied(result: object) -> None:
            if simulator.chance.random() >= simulator.faults.lost_reply:
                self._after_delay(lambda: answer(result))

        self._after_delay(lambda: self.model.ask(machine.name, number, batch, replied))
