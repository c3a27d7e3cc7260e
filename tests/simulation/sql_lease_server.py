"""What PostgreSQL does with the conversations of protocol "lease": transactions and row locks.

For simulations; nothing else imports it. The conversations are the ones of `lease`, each statement
by its title. A conversation travels script by script: between two of them its client may freeze or
be cut off, with its transaction open and its row locked, until the server ends that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leaselock.backends.sql.lease import Lease
from leaselock.backends.sql.model_tables import Tables, names_of
from leaselock.backends.sql.script import SqlError, dialect_of
from leaselock.backends.sql.shelf import Asker
from leaselock.core.backend import WAKE_ALL, Acquire, Listen, Release
from leaselock.core.effects import FOREVER

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock.backends.sql.script import Part, Result, Script, Steps

# What `begin` sets: for a transaction that is idle, and for a row that others have locked.
PATIENCE = 3.0


class Conversation:
    """One request on its way, script by script, on a connection of its own."""

    def __init__(self, model: Model, machine: str, steps: Steps[Any], reply: Any) -> None:
        self.model = model
        self.machine = machine
        self.steps = steps
        self.reply = reply
        self.locked: tuple[str, ...] = ()
        self.saved: Any = None
        self.turn = 0
        self.ended = False

    def go_on(self, step: Callable[[], Script]) -> None:
        """The client's part, when it is neither dead nor frozen: the next script, or the answer."""
        thaw = self.model.thaws(self.machine)
        if thaw is None:
            self.cut()
        elif thaw:
            self.model.after(thaw, lambda: self.go_on(step))
        elif not self.ended:
            try:
                script = step()
            except StopIteration as done:
                self.ended = True
                self.reply(done.value)
            except SqlError:
                self.cut()
            else:
                self.model.travel(self, lambda: self.arrive(script))

    def arrive(self, script: Script) -> None:
        """The server's part: wait for the rows, do it, answer."""
        if self.ended:
            return
        wanted = () if self.locked else names_of(script)
        if any(name in self.model.owners for name in wanted):
            until = self.model.now() + PATIENCE if "begin" in script else FOREVER
            self.model.queue.append((self, script, wanted, until))
            self.model.after(PATIENCE, self.model.serve)
            return
        if wanted:
            self.locked, self.saved = wanted, self.model.tables.saved(wanted)
            self.model.owners.update(dict.fromkeys(wanted, self))
        results = [self._do(part) for part in script]
        if "begin" not in script:
            self.end_transaction()
        self._wait_for_more()
        self.model.travel(self, lambda: self.go_on(lambda: self.steps.send(results)))

    def _do(self, part: Part) -> Result:
        if part == "rollback" and self.locked:
            self.model.tables.restore(self.locked, self.saved)
        return self.model.tables.do(part)

    def refuse(self) -> None:
        """The time to wait for a row is over."""
        error = SqlError("55P03", "canceling statement due to lock timeout")
        self.model.travel(self, lambda: self.go_on(lambda: self.steps.throw(error)))

    def _wait_for_more(self) -> None:
        self.turn += 1
        turn = self.turn
        if self.locked:
            self.model.after(PATIENCE, lambda: self.cut() if self.turn == turn else None)

    def cut(self) -> None:
        """The connection ends; what was not committed has not been."""
        if not self.ended and self.locked:
            self.model.tables.restore(self.locked, self.saved)
            self.model.tables.notices.clear()
        self.ended = True
        self.end_transaction()

    def end_transaction(self) -> None:
        """Let others have the rows, and tell whom it concerns."""
        self.turn += 1
        for name in self.locked:
            self.model.owners.pop(name, None)
        self.locked = ()
        self.model.deliver()
        self.model.after(0.0, self.model.serve)


class Model:
    """A server: *thaws* says in how many seconds a machine goes on, None of a dead one; *delay* how
    long a message takes, None of one that is lost, and its connection with it.
    """

    def __init__(
        self,
        now: Callable[[], float],
        micros: Callable[[], int],
        after: Callable[[float, Callable[[], None]], None],
        thaws: Callable[[str], float | None],
        delay: Callable[[], float | None],
    ) -> None:
        self.now = now
        self.after = after
        self.thaws = thaws
        self.delay = delay
        self.tables = Tables(micros, lambda sign: sign in self.ears)
        self.leases: dict[str, Lease] = {}
        self.owners: dict[str, Conversation] = {}
        self.queue: list[tuple[Conversation, Script, tuple[str, ...], float]] = []
        self.ears: dict[str, str] = {}
        self.listening: dict[str, Any] = {}
        self.unheard: dict[str, list[str]] = {}

    def ask(self, machine: str, request: Any, reply: Any) -> None:
        """One request to the store or to the ear, arriving now."""
        if isinstance(request, Listen):
            self._listen(machine, request.client, reply)
            return
        client = request.claim.client if isinstance(request, (Acquire, Release)) else ""
        lease = self.leases.setdefault(machine, Lease(dialect_of("postgres")))
        sign = client if client in self.ears else None
        steps = lease.about(request, Asker(client, polls=False, sign=sign))
        Conversation(self, machine, steps, reply).arrive(next(steps))

    def travel(self, conversation: Conversation, arrive: Callable[[], None]) -> None:
        """A message on its way; with it, its connection may be lost."""
        delay = self.delay()
        if delay is None:
            self.after(PATIENCE if conversation.locked else 0.0, conversation.cut)
        else:
            self.after(delay, arrive)

    def serve(self) -> None:
        """Whoever waited for a row that is free now; who has waited too long is refused."""
        waiting, self.queue = self.queue, []
        for conversation, script, wanted, until in waiting:
            if conversation.ended:
                continue
            if until <= self.now():
                conversation.refuse()
            elif self.owners.keys().isdisjoint(wanted):
                conversation.arrive(script)
            else:
                self.queue.append((conversation, script, wanted, until))

    def _listen(self, machine: str, client: str, reply: Any) -> None:
        if self.thaws(machine) is None:
            return
        words = self.unheard.pop(client, [])
        if client not in self.ears:
            self.ears[client] = machine
            reply((WAKE_ALL,))
        elif words:
            reply(tuple(words))
        else:
            self.listening[client] = reply

    def deliver(self) -> None:
        """What was said on the channels."""
        notices, self.tables.notices = self.tables.notices, []
        for channel, holder in notices:
            client = channel.removeprefix("leaselock_")
            reply = self.listening.pop(client, None)
            if reply is not None:
                reply((holder,))
            elif client in self.ears:
                self.unheard.setdefault(client, []).append(holder)

    def die(self, machine: str) -> None:
        """The connections of a machine end."""
        for client in [client for client, its in self.ears.items() if its == machine]:
            del self.ears[client]
            self.listening.pop(client, None)
        for conversation in [c for c in self.owners.values() if c.machine == machine]:
            conversation.cut()
