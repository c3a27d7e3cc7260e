"""The driver for simulations: one thread, a virtual clock, and chance from a seed.

Everything that can happen is an entry on one agenda; the seed decides when and in what order,
which requests and replies are lost, who freezes and for how long. The processes are the very
ones that threads and tasks run, and they interleave at the same points: their awaits.

A model answers in place of a store. It is asked when a request arrives and calls `reply` when
it has an answer, so the answer to an ear may come much later, or never.
"""

from __future__ import annotations

import random
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from leaselock.core.effects import FOREVER, Call, CallUser, Sleep, Spawn, Wait
from leaselock.drivers.simulated_machine import LONGEST_DELAY, Interrupted
from leaselock.drivers.system_env import given_up
from leaselock.errors import LeaselockError, OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from leaselock.core.effects import Effect, Signal
    from leaselock.drivers.simulated_machine import Faults, Machine, Run
    from leaselock.drivers.simulated_model import LocalModel, Model


class World:
    """The agenda, the clock, the machines, and the models of the stores."""

    def __init__(self, seed: int, models: Mapping[str, Model | LocalModel], faults: Faults) -> None:
        self.chance = random.Random(seed)
        self.models = models
        self.faults = faults
        self.time = 0.0
        self.steps = 0
        # How often what a machine believes may have changed: by its steps, and by its death.
        self.moves = 0
        self.agenda: list[tuple[float, float, int, Callable[[], None]]] = []
        self.entries = 0
        self.trace: list[str] | None = None
        self.check: Callable[[], None] = _nothing
        # Set by what happened when it was nothing: a timer that nobody waits for any more.
        self.quiet = False

    def after(self, seconds: float, action: Callable[[], None]) -> None:
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
            self.trace.append(f"{self.time:10.4f}  {machine.name:<6} {text}")

    def step(self, run: Run, turn: int, answer: object, error: BaseException | None) -> None:
        """Give an answer to the process that waits for it in this turn."""
        machine = run.machine
        if run.ended or run.turn != turn or given_up(run.process):
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
        machine.current = run.caller
        try:
            effect = run.process.send(answer) if error is None else run.process.throw(error)
        except StopIteration as done:
            self._end(run, done.value, None)
        except (Interrupted, LeaselockError) as raised:
            # Without its traceback, whose frames would keep alive what the process let go.
            self._end(run, None, raised.with_traceback(None))
        else:
            self._perform(run, effect)

    def _end(self, run: Run, result: object, error: BaseException | None) -> None:
        run.ended, run.result, run.error = True, result, error
        run.machine.runs.pop(run, None)
        if self.trace is not None:
            self.note(run.machine, f"{run.name} ends: {error!r}" if error else f"{run.name} ends")

    def interrupt(self, run: Run) -> None:
        """Cancel what the process waits for."""
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
            self._at(run.machine, effect.until, resume)
        elif isinstance(effect, Spawn):
            run.machine.start(effect.process, effect.name)
            self.after(0.0, resume)
        elif isinstance(effect, CallUser):
            effect.callback(effect.argument)
            self.after(0.0, resume)
        else:
            raise TypeError(f"the core awaited {effect!r}, which is not an effect")

    def _at(self, machine: Machine, until: float, action: Callable[[], None]) -> None:
        if until < FOREVER:
            self.after(max(0.0, until / machine.rate - self.time), action)

    def _wait(
        self, machine: Machine, signal: Signal, until: float, resume: Callable[..., None]
    ) -> None:
        def wake() -> None:
            self.after(0.0, lambda: resume(signal.is_set))

        if signal.is_set:
            wake()
            return
        signal.wakers.append(wake)
        self._at(machine, until, lambda: resume(signal.is_set))

    def _call(self, run: Run, call: Call, resume: Callable[..., None]) -> None:
        machine, faults = run.machine, self.faults
        if self.trace is not None:
            self.note(machine, f"{run.name} asks {call.node}: {call.request!r}")
        node: Any = self.models[call.node] if isinstance(call.node, str) else call.node
        if hasattr(node, "handle"):
            self._call_near(run, call, node, resume)
            return
        self._at(machine, call.until, lambda: resume(None, OutcomeUnknown("no answer in time")))
        self._perhaps_freeze(machine, faults)
        # An ear is in the process that asks it, however long it is to listen.
        endless = call.until == FOREVER or call.node == "ear"
        if not endless and self.chance.random() < faults.lost_request:
            return
        lost = faults.lost_message if endless else faults.lost_reply
        thaw = max(0.0, machine.frozen_until - self.time)

        def reply(answer: object) -> None:
            if self.chance.random() < lost:
                answer = ()  # what an ear did not hear is gone, but it goes on listening
            if answer != () or endless:
                self.after(self._delay(faults), lambda: self._arrive(machine, answer, resume))

        def arrive() -> None:
            node.ask(machine.name, call.request, reply)

        # What was sent arrives, even when its sender has crashed meanwhile. What a frozen
        # sender has not sent yet does not.
        self.after(thaw, lambda: self._send(machine, arrive))

    def _call_near(
        self, run: Run, call: Call, node: LocalModel, resume: Callable[..., None]
    ) -> None:
        machine, turn = run.machine, run.turn

        def wanted() -> bool:
            return run.turn == turn and not run.ended

        def reply(answer: object) -> None:
            self.after(0.0, lambda: self._arrive(machine, answer, resume))

        self._perhaps_freeze(machine, self.faults)
        thaw = max(0.0, machine.frozen_until - self.time)
        self.after(thaw, lambda: node.handle(machine, call, wanted, reply))

    def _send(self, machine: Machine, arrive: Callable[[], None]) -> None:
        self.quiet = True
        if machine.alive:
            self.after(self._delay(self.faults), arrive)

    def _arrive(self, machine: Machine, answer: object, resume: Callable[..., None]) -> None:
        self._perhaps_freeze(machine, self.faults)
        if self.trace is not None:
            self.note(machine, f"is answered {answer!r}")
        if isinstance(answer, Exception):
            resume(None, answer)
        else:
            resume(answer)

    def _delay(self, faults: Faults) -> float:
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
