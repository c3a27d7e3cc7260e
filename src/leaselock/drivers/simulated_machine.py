"""The machines of a simulation: clients, each with a clock, chance and processes of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.core.effects import Owner

if TYPE_CHECKING:
    from leaselock.core.effects import Guard, Process
    from leaselock.drivers.simulated import World

EPOCH = 1_700_000_000.0
# What is under way for longer may come when a store has forgotten that it was given up: they
# remember that for two minutes, and promise no more.
LONGEST_DELAY = 100.0


class Faults(NamedTuple):
    """How likely what is, for each request; times in seconds."""

    delay: float = 0.001
    """The mean time that a request or a reply takes."""
    slow: float = 0.0
    """How likely one takes a thousand times as long, up to `LONGEST_DELAY`."""
    lost_request: float = 0.0
    lost_reply: float = 0.0
    lost_message: float = 0.0
    freeze: float = 0.0
    """How likely a client freezes before it sends, or after a reply has arrived."""
    freeze_mean: float = 0.1


class Interrupted(BaseException):
    """What a cancelled or interrupted process meets at its suspension."""


class Run:
    """One process on its way."""

    __slots__ = ("caller", "ended", "error", "machine", "name", "process", "result", "turn")

    def __init__(self, machine: Machine, process: Process[Any], caller: Owner, name: str) -> None:
        self.machine = machine
        self.process = process
        self.caller = caller
        self.name = name
        self.turn = 0
        self.ended = False
        self.result: Any = None
        self.error: BaseException | None = None


class Machine:
    """One client program: its clock, its chance, its processes. It is the core's `Env`, too."""

    def __init__(self, world: World, name: str, rate: float = 1.0) -> None:
        self.world = world
        self.name = name
        self.rate = rate
        self.alive = True
        self.frozen_until = 0.0
        self.runs: dict[Run, None] = {}
        self.current: Owner | None = None
        self.tokens = 0

    def now(self) -> float:
        """This machine's clock."""
        return self.world.time * self.rate

    def wall(self) -> float:
        """Unix time."""
        return EPOCH + self.world.time

    def token(self) -> str:
        """A name that no other machine gives."""
        self.tokens += 1
        return f"{self.name}.{self.tokens}"

    def random(self) -> float:
        """A number from 0 up to 1."""
        return self.world.chance.random()

    def caller(self) -> Owner:
        """The process that takes this step, or that was started on its behalf."""
        assert self.current is not None
        return self.current

    def guard(self) -> Guard | None:
        """A simulated body looks at its lease by itself."""
        return None

    def place(self) -> tuple[str, int]:
        """Where it runs."""
        return self.name, 1

    def start(self, process: Process[Any], name: str = "user") -> Run:
        """Begin *process* as a holder of its own."""
        run = Run(self, process, Owner(name), name)
        self.runs[run] = None
        self.world.after(0.0, lambda: self.world.step(run, 0, None, None))
        return run

    def freeze(self, seconds: float) -> None:
        """Stop stepping for a while, as SIGSTOP or a long pause does."""
        self.frozen_until = max(self.frozen_until, self.world.time + seconds)

    def crash(self) -> None:
        """End without any clean-up reaching the world."""
        self.alive = False
        self.world.moves += 1
        for run in list(self.runs):
            run.ended = True
            run.process.close()
        self.runs.clear()
        for model in self.world.models.values():
            model.die(self.name)
