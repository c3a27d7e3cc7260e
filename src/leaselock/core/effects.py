"""The questions that the core may ask the world.

A process of the core is a coroutine that awaits these objects and nothing else. A driver
(threads, asyncio, simulation) takes each one out of `send`, does it, and sends the answer in.
Nothing here waits, and no event loop is involved: `async def` is only the notation.

Between two awaits a process runs alone. Changes that belong together happen between two awaits.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Process = Coroutine["Effect[Any]", Any, T]
FOREVER = float("inf")


class Effect(Generic[T]):
    """One question; awaiting it hands it to the driver and gives back the answer."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[T], Any, T]:
        reply: T = yield self
        return reply


class Request(Generic[R_co]):
    """A request to a node. Its parameter is the type of its reply."""

    __slots__ = ()


class Call(Effect[R]):
    """Send *request* to *node* and return its reply; NotApplied or OutcomeUnknown after *until*.

    A node is one connection: a blocking one or an asyncio one, as the driver needs it. Its method
    `call(request, until)` returns the reply or, for asyncio, an awaitable of it.
    """

    __slots__ = ("node", "request", "until")

    def __init__(self, node: Any, request: Request[R], until: float) -> None:
        self.node = node
        self.request = request
        self.until = until


class Sleep(Effect[None]):
    """Let time pass until *until*."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until


class Wait(Effect[bool]):
    """Wait for *signal*, at most until *until*; the answer says whether it was set."""

    __slots__ = ("signal", "until")

    def __init__(self, signal: Signal, until: float) -> None:
        self.signal = signal
        self.until = until


class Spawn(Effect[None]):
    """Run *process* beside this one, under *name*; it ends with the client at the latest."""

    __slots__ = ("name", "process")

    def __init__(self, process: Process[None], name: str) -> None:
        self.process = process
        self.name = name


class CallUser(Effect[None]):
    """Call a function of the user's, outside every lock of ours; what it raises is reported."""

    __slots__ = ("argument", "callback")

    def __init__(self, callback: Callable[[Any], object], argument: object) -> None:
        self.callback = callback
        self.argument = argument


class Signal:
    """A flag that processes wait for. It is set and read between awaits, so it needs no lock.

    A waiting driver leaves a callback here. The callback must not block: it is called in the
    step that sets the signal.
    """

    __slots__ = ("is_set", "wakers")

    def __init__(self) -> None:
        self.is_set = False
        self.wakers: list[Callable[[], None]] = []

    def set(self) -> None:
        """Wake everyone who waits, now and until `clear`."""
        self.is_set = True
        wakers, self.wakers = self.wakers, []
        for wake in wakers:
            wake()

    def clear(self) -> None:
        """Let the next wait wait."""
        self.is_set = False


class Owner:
    """Who calls: one thread or one task, as one client sees it. A new one gets a new Caller.

    It dies with its thread or task, which is how a hold whose owner is gone is noticed;
    thread identifiers are no use for that, since the interpreter gives them out again.
    What the core knows of the caller hangs here: its holds by name, and the text about it.
    """

    __slots__ = ("__weakref__", "about", "holds", "reference", "title")

    def __init__(self, title: str) -> None:
        self.title = title
        self.reference = weakref.ref(self)
        # The label that was asked for last, and the text about it.
        self.about: tuple[str | None, str] = (None, "")
        # By the client that has it, for one of the core has an identity for each way of locking,
        # and by the name: locks of the same name exclude one another only within one way.
        self.holds: dict[tuple[str, str], weakref.ref[Any]] = {}


class Guard(Protocol):
    """Stops the body of a `with` when its lease is lost, where the driver can do that."""

    def interrupt(self) -> None:
        """Stop the body (called in a step of the core; must not block)."""
        ...

    def settle(self, exception: BaseException | None) -> bool:
        """End guarding; says whether *exception* is our own interruption coming out."""
        ...


class Env(Protocol):
    """What needs no waiting: the clock, chance, and who is calling."""

    def now(self) -> float:
        """Seconds on the clock of all deadlines: nobody sets it, and it counts suspend."""
        ...

    def wall(self) -> float:
        """Unix time, for people to read; never used to decide."""
        ...

    def random_id(self) -> str:
        """128 fresh random bits as 32 hexadecimal digits."""
        ...

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...

    def owner(self) -> Owner:
        """The thread or task that runs this step."""
        ...

    def guard(self) -> Guard | None:
        """A guard over the calling task's body; None where nobody can stop it."""
        ...

    def host_and_pid(self) -> tuple[str, int]:
        """This host's name and this process's number, for people to read."""
        ...
