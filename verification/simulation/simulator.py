"""The simulator: one thread, a virtual clock, and a random generator seeded per scenario.

It is a third driver of the core, after threads and asyncio, and the `Env` of its operations. Every
event is an entry in one agenda. The seed decides when and in which order events happen, which
requests and replies are lost, and which machines freeze and for how long. The processes are the
production text; they interleave at their awaits, as they do under the other drivers.

A model answers instead of a store. It receives a request and calls `reply` when it has an answer,
so the answer to a listener may come much later, or never.
"""

from __future__ import annotations

import random
import re
from collections.abc import Coroutine
from contextlib import nullcontext
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from leaselock._core.contract.backend import Listen
from leaselock._core.contract.effects import FOREVER, Call, CallUser, Owner, Sleep, Spawn, Wait
from leaselock._drivers.system_env import was_closed
from leaselock.errors import LeaselockError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    from leaselock._core.contract.effects import BodyInterrupter, Effect, Operation, Signal

EPOCH = 1_700_000_000.0
# A request that is in flight for longer may arrive after the expiry of its tombstone, which stores
# keep for two minutes.
LONGEST_DELAY = 100.0


class Faults(NamedTuple):
    """Probability of each fault, per request; times in seconds."""

    delay: float = 0.001
    """The mean time that a request or a reply takes."""
    slow: float = 0.0
    """The probability that one takes a thousand times as long, up to `LONGEST_DELAY`."""
    lost_request: float = 0.0
    lost_reply: float = 0.0
    lost_message: float = 0.0
    freeze: float = 0.0
    """The probability that a client freezes before it sends, or after a reply has arrived."""
    freeze_mean: float = 0.1


class Interrupted(BaseException):
    """Raised in a cancelled or interrupted operation at its suspension."""


class Run:
    """A running operation."""

    __slots__ = (
        "connection",
        "ended",
        "error",
        "machine",
        "name",
        "operation",
        "owner",
        "result",
        "turn",
    )

    def __init__(
        self, machine: Machine, operation: Operation[Any], owner: Owner, name: str
    ) -> None:
        self.machine = machine
        self.operation = operation
        self.owner = owner
        self.name = name
        self.turn = 0
        self.ended = False
        # The connection that it waits for in a call, if it waits for one.
        self.connection: Any = None
        self.result: Any = None
        self.error: BaseException | None = None


class Machine:
    """One client program: its clock, its chance, its operations. It is the core's `Env`, too."""

    blocks_thread = False

    def __init__(self, simulator: Simulator, name: str, rate: float = 1.0) -> None:
        self.simulator = simulator
        self.name = name
        self.rate = rate
        self.alive = True
        self.frozen_until = 0.0
        self.runs: dict[Run, None] = {}
        self.current: Owner | None = None
        self.tokens = 0

    def now(self) -> float:
        """This machine's clock."""
        return self.simulator.time * self.rate

    def wall(self) -> float:
        """Unix time."""
        return EPOCH + self.simulator.time

    def random_id(self) -> str:
        """A name that no other machine gives."""
        self.tokens += 1
        return f"{self.name}.{self.tokens}"

    def random(self) -> float:
        """A number from 0 up to 1."""
        return self.simulator.chance.random()

    def owner(self) -> Owner:
        """The operation that takes this step, or that was started on its behalf."""
        assert self.current is not None
        return self.current

    def records_call_sites(self) -> bool:
        """No."""
        return False

    def call_site(self) -> str:
        """Not recorded."""
        return ""

    def caller(self) -> str:
        """The program of a simulated process."""
        return "simulation:program:1"

    def process_identity(self) -> str:
        """Not known."""
        return ""

    def body_interrupter(self) -> BodyInterrupter | None:
        """A simulated body looks at its lease by itself."""
        return None

    def exit_on_sigterm(self) -> AbstractContextManager[None]:
        """A simulated machine gets no signals."""
        return nullcontext()

    def host_and_pid(self) -> tuple[str, int]:
        """Where it runs."""
        return self.name, 1

    def start(self, operation: Operation[Any], name: str = "user") -> Run:
        """Begin *operation* as a holder of its own."""
        run = Run(self, operation, Owner(name), name)
        self.runs[run] = None
        self.simulator.after(0.0, lambda: self.simulator.step(run, 0, None, None))
        return run

    def freeze(self, seconds: float) -> None:
        """Stop stepping for a while, as SIGSTOP or a long pause does."""
        self.frozen_until = max(self.frozen_until, self.simulator.time + seconds)

    def crash(self) -> None:
        """End without any clean-up reaching the simulator."""
        self.alive = False
        self.simulator.moves += 1
        for run in list(self.runs):
            run.ended = True
            run.operation.close()
        self.runs.clear()
        for model in self.simulator.models.values():
            model.die(self.name)


class Model(Protocol):
    """What a store does with requests."""

    def ask(self, client: str, request: Any, reply: Callable[[object], None]) -> None:
        """Carry out one request of the machine *client*, and answer when there is an answer."""
        ...

    def die(self, client: str) -> None:
        """The machine *client* is gone."""
        ...


class LocalModel(Protocol):
    """A node in the client's own process, which plays the network behind it by itself."""

    def handle(
        self,
        machine: Machine,
        call: Call[Any],
        wanted: Callable[[], bool],
        reply: Callable[[object], None],
    ) -> None:
        """Answer the call, at its deadline at the latest, with an error as the case may be; after
        each step ask whether the answer is still wanted.
        """
        ...

    def die(self, client: str) -> None:
        """The machine *client* is gone."""
        ...


class Simulator:
    """The agenda, the clock, the machines, and the models of the stores."""

    def __init__(self, seed: int, models: Mapping[str, Model | LocalModel], faults: Faults) -> None:
        self.chance = random.Random(seed)
        self.models = models
        self.faults = faults
        self.time = 0.0
        self.steps = 0
        # Incremented when the holds of a machine may have changed: by its steps, and by its death.
        self.moves = 0
        self.agenda: list[tuple[float, float, int, Callable[[], object]]] = []
        self.entries = 0
        self.trace: list[str] | None = None
        self.check: Callable[[], None] = _nothing
        # Set by an event without effect, such as a timer that is not waited for any more.
        self.quiet = False

    def after(self, seconds: float, action: Callable[[], object]) -> None:
        """Put *action* on the agenda; chance orders what happens at the same moment."""
        self.entries += 1
        entry = (self.time + seconds, self.chance.random(), self.entries, action)
        heappush(self.agenda, entry)

    def play(self, until: float) -> None:
        """Let happen what happens until *until*; check after each thing that changes anything."""
        agenda = self.agenda
        while agenda and agenda[0][0] <= until:
            self.time, _, _, action = heappop(agenda)
            self.quiet = False
            action()
            if not self.quiet:
                self.check()
        self.time = until

    def note(self, machine: Machine, text: str) -> None:
        """Write a line of the trace, when one is wanted."""
        if self.trace is not None:
            # Without the addresses of objects, which differ from run to run.
            text = re.sub(r" at 0x[0-9a-f]+", "", text)
            self.trace.append(f"{self.time:10.4f}  {machine.name:<6} {text}")

    def step(self, run: Run, turn: int, answer: object, error: BaseException | None) -> None:
        """Give an answer to the operation that waits for it in this turn."""
        machine = run.machine
        if run.ended or run.turn != turn or was_closed(run.operation):
            self.quiet = True
            return
        if machine.frozen_until > self.time:
            self.quiet = True
            delay = machine.frozen_until - self.time
            self.after(delay, lambda: self.step(run, turn, answer, error))
            return
        run.turn += 1
        self.steps += 1
        self.moves += 1
        connection, run.connection = run.connection, None
        if connection is not None and isinstance(error, Interrupted):
            connection.interrupted()
        machine.current = run.owner
        try:
            effect = run.operation.send(answer) if error is None else run.operation.throw(error)
        except StopIteration as done:
            self._end(run, done.value, None)
        except (Interrupted, LeaselockError) as raised:
            # Without its traceback, whose frames would keep alive what the operation let go.
            self._end(run, None, raised.with_traceback(None))
        else:
            self._perform(run, effect)

    def _end(self, run: Run, result: object, error: BaseException | None) -> None:
        run.ended, run.result, run.error = True, result, error
        run.machine.runs.pop(run, None)
        if self.trace is not None:
            self.note(run.machine, f"{run.name} ends: {error!r}" if error else f"{run.name} ends")

    def interrupt(self, run: Run) -> None:
        """Cancel what the operation waits for."""
        turn = run.turn
        self.after(0.0, lambda: self.step(run, turn, None, Interrupted()))

    def _perform(self, run: Run, effect: Effect[Any]) -> None:
        turn = run.turn

        def resume(answer: object = None, error: BaseException | None = None) -> None:
            self.step(run, turn, answer, error)

        if isinstance(effect, Call):
            self._call(run, effect, resume)
        elif isinstance(effect, Wait):
            self._wait(run.machine, effect.signal, effect.until, resume)
        elif isinstance(effect, Sleep):
            self.at(run.machine, effect.until, resume)
        elif isinstance(effect, Spawn):
            run.machine.start(effect.operation, effect.name)
            self.after(0.0, resume)
        elif isinstance(effect, CallUser):
            self._call_user(run, effect, resume)
        else:
            raise TypeError(f"the core awaited {effect!r}, which is not an effect")

    def _call_user(self, run: Run, effect: CallUser, resume: Callable[..., None]) -> None:
        """Call a function; if it makes an operation, its end is the answer."""
        answer = effect.callback(effect.argument)
        if not isinstance(answer, Coroutine):
            self.after(0.0, lambda: resume(answer))
            return

        async def called() -> None:
            error: BaseException | None = None
            try:
                result = await answer
            except (Interrupted, LeaselockError) as raised:
                result, error = None, raised
            self.after(0.0, lambda: resume(result, error))

        self._start_as(run.owner, run.machine, called())

    def _start_as(self, owner: Owner, machine: Machine, operation: Operation[Any]) -> None:
        """Begin *operation* on behalf of an owner."""
        run = Run(machine, operation, owner, "body")
        machine.runs[run] = None
        # At once: an interruption finds it at a suspension, as in the task of its caller.
        self.step(run, 0, None, None)

    def at(self, machine: Machine, until: float, action: Callable[[], object]) -> None:
        """Let something happen at a time of a machine's clock."""
        if until < FOREVER:
            # Where the clock of a machine has another rate, rounding must not wake it too early.
            rounding = 0.0 if machine.rate == 1.0 else 1e-9
            self.after(max(0.0, until / machine.rate - self.time) + rounding, action)

    def _wait(
        self, machine: Machine, signal: Signal, until: float, resume: Callable[..., None]
    ) -> None:
        def wake() -> None:
            self.after(0.0, lambda: resume(signal.is_set))

        if signal.is_set:
            wake()
            return
        signal.wakers.append(wake)
        self.at(machine, until, lambda: resume(signal.is_set))

    def _call(self, run: Run, call: Call[Any], resume: Callable[..., None]) -> None:
        machine, faults = run.machine, self.faults
        if self.trace is not None:
            self.note(machine, f"{run.name} asks {call.node}: {call.request!r}")
        node: Any = self.models[call.node] if isinstance(call.node, str) else call.node
        if hasattr(node, "start"):
            # A connection: it plays the network itself, from this very step on.
            self._perhaps_freeze(machine, faults)
            run.connection = node
            node.start(call.request, call.until, lambda answer: self._reply(run, answer, resume))
            return
        if hasattr(node, "handle"):
            self._call_near(run, call, node, resume)
            return
        if isinstance(call.request, Listen):
            self._listen(run, call, node, resume)
            return
        self.at(machine, call.until, lambda: resume(None, OutcomeUnknown("no answer in time")))
        self._perhaps_freeze(machine, faults)
        if self.chance.random() < faults.lost_request:
            return
        thaw = max(0.0, machine.frozen_until - self.time)

        def reply(answer: object) -> None:
            if self.chance.random() >= faults.lost_reply:
                self.after(self.delay(faults), lambda: self._arrive(run, answer, resume))

        def arrive() -> None:
            node.ask(machine.name, call.request, reply)

        # What was sent arrives, even when its sender has crashed meanwhile. What a frozen
        # sender has not sent yet does not.
        self.after(thaw, lambda: self._send(machine, arrive))

    def _listen(self, run: Run, call: Call[Any], node: Any, resume: Callable[..., None]) -> None:
        machine, faults = run.machine, self.faults
        self._perhaps_freeze(machine, faults)
        thaw = max(0.0, machine.frozen_until - self.time)

        def heard(claims: tuple[str, ...], hear: Callable[[tuple[str, ...]], None]) -> None:
            # The listener goes on without a message that was lost.
            lost = self.chance.random() < faults.lost_message
            self.after(self.delay(faults), lambda: hear(() if lost else claims))

        self.after(thaw, self.listener(run, call, node, resume, heard))

    def listener(
        self,
        run: Run,
        call: Call[Any],
        node: Any,
        resume: Callable[..., None],
        heard: Callable[[tuple[str, ...], Callable[[tuple[str, ...]], None]], None],
    ) -> Callable[[], None]:
        """What begins to listen, until the deadline or the interruption; *heard* gets each message
        and the function that delivers it.

        The listener is in the process that asks it. A message that comes later is kept for the
        next time, as a fifo does it.
        """
        request: Any = call.request
        turn, done = run.turn, False

        def wanted() -> bool:
            return not (done or run.ended or run.turn != turn)

        def end(answer: object) -> None:
            nonlocal done
            done = True
            request.interrupt.remove(wake)
            self.after(0.0, lambda: self._arrive(run, answer, resume))

        def wake() -> None:
            if not done:
                end(())

        def hear(claims: tuple[str, ...]) -> None:
            if wanted():
                end(claims)
                return
            for claim in claims:
                node.notify(request.client, claim)

        def begin() -> None:
            if wanted():
                node.ask(run.machine.name, request, lambda claims: heard(claims, hear))

        request.interrupt.wakers.append(wake)
        if request.interrupt.is_set:
            wake()
        self.at(run.machine, call.until, wake)
        return begin

    def _reply(self, run: Run, answer: object, resume: Callable[..., None]) -> None:
        self.after(0.0, lambda: self._arrive(run, answer, resume))

    def _call_near(
        self, run: Run, call: Call[Any], node: LocalModel, resume: Callable[..., None]
    ) -> None:
        machine, turn = run.machine, run.turn

        def wanted() -> bool:
            return run.turn == turn and not run.ended

        def reply(answer: object) -> None:
            self.after(0.0, lambda: self._arrive(run, answer, resume))

        self._perhaps_freeze(machine, self.faults)
        thaw = max(0.0, machine.frozen_until - self.time)
        self.after(thaw, lambda: node.handle(machine, call, wanted, reply))

    def _send(self, machine: Machine, arrive: Callable[[], None]) -> None:
        self.quiet = True
        if machine.alive:
            self.after(self.delay(self.faults), arrive)

    def _arrive(self, run: Run, answer: object, resume: Callable[..., None]) -> None:
        self._perhaps_freeze(run.machine, self.faults)
        if self.trace is not None:
            self.note(run.machine, f"{run.name} is answered {answer!r}")
        if isinstance(answer, Exception):
            resume(None, answer)
        else:
            resume(answer)

    def delay(self, faults: Faults) -> float:
        slow = 1000.0 if self.chance.random() < faults.slow else 1.0
        return min(LONGEST_DELAY, self.chance.expovariate(1.0 / faults.delay) * slow)

    def _perhaps_freeze(self, machine: Machine, faults: Faults) -> None:
        if faults.freeze and self.chance.random() < faults.freeze:
            seconds = self.chance.expovariate(1.0 / faults.freeze_mean)
            if self.trace is not None:
                self.note(machine, f"freezes for {seconds:.3f} s")
            machine.freeze(seconds)


def _nothing() -> None:
    """No invariant to check."""
