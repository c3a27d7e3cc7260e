"""What the runs of both models share: their scenarios, and their events as TLA+ writes them.

One lock and one user per machine, no crash and no break: these the models do not have. Times are
multiples of 2**-20 s, which floating-point numbers represent exactly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from verification.simulation.scenario import CRASH, Scenario

if TYPE_CHECKING:
    from verification.simulation.scenario import Outcome

TICKS = 1 << 20
NAME = "a"


def ticks(seconds: float) -> int:
    """The whole ticks of a time."""
    return int(seconds * TICKS)


class Recorded(Scenario):
    """A scenario whose run is recorded. *recorder* has the events; what comes when it is done is
    left out.
    """

    users = (1,)
    recorder: Any

    def __init__(self, seed: int, traced: bool = False) -> None:
        self.recorder = self.make_recorder()
        super().__init__(seed, traced)
        self.crashes = self.breaks = False
        self.children_left = 0
        self.names = [NAME]

    def make_recorder(self) -> Any:
        """Make the recorder."""
        raise NotImplementedError

    def run(self) -> Outcome:
        """Play the scenario. What is cleaned up after it is not a part of the run."""
        self.simulator.after(self.end - 1e-3, self._stop)
        return super().run()

    def _stop(self) -> None:
        self.recorder.done = True


def events_of(kind: type[Recorded], seed: int) -> list[dict[str, object]]:
    """The events of one seed, whatever the simulator's own judge says about it. RuntimeError if the
    run was cut short by an exception: then nothing would be compared.
    """
    scenario = kind(seed)
    outcome = scenario.run()
    if outcome.invariant == CRASH:
        raise RuntimeError(f"seed {seed}: {outcome.violation}")
    events: list[dict[str, object]] = scenario.recorder.events()
    return events


class Members(NamedTuple):
    """A set of records."""

    records: list[dict[str, object]]


def tla(value: object) -> str:
    """A value as TLA+ writes it."""
    if isinstance(value, Members):
        return "{" + ", ".join(map(tla, value.records)) + "}"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, dict):
        return "[" + ", ".join(f"{name} |-> {tla(v)}" for name, v in value.items()) + "]"
    if isinstance(value, frozenset):
        return "{" + ", ".join(sorted(map(tla, value))) + "}"
    if isinstance(value, (tuple, list)):
        return "<<" + ", ".join(map(tla, value)) + ">>"
    return str(value)


def module(traces: list[list[dict[str, object]]]) -> str:
    """The module `traces`, with these runs."""
    runs = ",\n".join("<<" + ",\n".join(tla(event) for event in events) + ">>" for events in traces)
    return f"---- MODULE traces ----\nEXTENDS Integers, Sequences\nTraces == <<\n{runs}\n>>\n====\n"
