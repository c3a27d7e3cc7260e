"""The effects that the core awaits, and the environment that it reads.

An operation of the core is a coroutine that awaits effects and nothing else. A driver (threads,
asyncio, the simulator) gets each effect from `send`, performs it, and sends the result back.
Nothing here waits, and no event loop is involved: `async def` is only the notation.

The code between two awaits is one atomic step. Changes that belong together are made in one step.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Generator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar, overload

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

T = TypeVar("T")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
Operation = Coroutine["Effect[Any]", Any, T]
FOREVER = float("inf")


class Effect(Generic[T]):
    """Awaiting an effect hands it to the driver and returns its result."""

    __slots__ = ()

    def __await__(self) -> Generator[Effect[T], Any, T]:
        reply: T = yield self
        return reply


class Request(Generic[R_co]):
    """A request to a store, or to a node. Its parameter is the type of its reply."""

    __slots__ = ()
    method = ""
    """The name of the method that carries it out, in a backend that has one for it."""
    wakes = False
    """Its reply names claims of the same client that should ask again, as `notified`."""

    def expects(self) -> Any:
        """The claim that is to be notified from now on, if there is one."""
        return None


class Call(Effect[R]):
    """Send *request* to *node* and return its reply; NotApplied or OutcomeUnknown after *until*.

    A node is one connection: a blocking one or an asyncio one, as the driver needs it. Its method
    `call(request, until)` returns the reply or, for asyncio, an awaitable of it.

    With *then*, the result is what that makes of the request and its reply: so a request whose
    reply needs one more step takes no coroutine of its own.
    """

    __slots__ = ("node", "request", "then", "until")

    @overload
    def __init__(self, node: Any, request: Request[R], until: float) -> None: ...

    @overload
    def __init__(
        self, node: Any, request: Request[Any], until: float, then: Callable[[Any, Any], R]
    ) -> None: ...

    def __init__(
        self,
        node: Any,
        request: Request[Any],
        until: float,
        then: Callable[[Any, Any], Any] | None = None,
    ) -> None:
        self.node = node
        self.request = request
        self.until = until
        self.then = then

    def __await__(self) -> Generator[Effect[R], Any, R]:
        """Send it, and return what `then` makes of the request and its reply."""
        reply: R = yield self
        return reply if self.then is None else self.then(self.request, reply)


class Sleep(Effect[None]):
    """Wait until *until*."""

    __slots__ = ("until",)

    def __init__(self, until: float) -> None:
        self.until = until


class Wait(Effect[bool]):
    """Wait for *signal*, at most until *until*; return whether it was set."""

    __slots__ = ("signal", "until")

    def __init__(self, signal: Signal, until: float) -> None:
        self.signal = signal
        self.until = until


class Spawn(Effect[None]):
    """Run *operation* in the background, under *name*; it ends with the client at the latest."""

    __slots__ = ("name", "operation")

    def __init__(self, operation: Operation[None], name: str) -> None:
        self.operation = operation
        self.name = name


class CallUser(Effect[Any]):
    """Call a function of the user without holding the monitor, and return its result. An exception
    of it is *reported*, or else raised.
    """

    __slots__ = ("argument", "callback", "reported")

    def __init__(
        self, callback: Callable[[Any], object], argument: object, *, reported: bool = True
    ) -> None:
        self.callback = callback
        self.argument = argument
        self.reported = reported


class Signal:
    """A flag that operations wait for. It is set and read in steps, so it needs no lock.

    A driver that waits adds a callback. The callback is called in the step that sets the signal, so
    it must not block.
    """

    __slots__ = ("is_set", "wakers")

    def __init__(self) -> None:
        self.is_set = False
        self.wakers: list[Callable[[], None]] = []

    def add(self, function: Callable[[], None]) -> Callable[[], None]:
        """Call *function* at the next `set`. Return what `remove` takes, which is of this wait
        alone: a `set` in another thread may still be busy with an earlier one.
        """
        wake = partial(function)
        self.wakers.append(wake)
        return wake

    def set(self) -> None:
        """Wake all that wait, now and until `clear`.

        Each is called before it is taken out of the list: if this is interrupted between the two,
        the next `set` calls it again.
        """
        self.is_set = True
        # A blocking node takes its callback out of the list outside of the steps.
        for wake in tuple(self.wakers):
            with suppress(RuntimeError):  # a lock that was released before
                wake()
            self.remove(wake)

    def clear(self) -> None:
        """The next `Wait` waits again."""
        self.is_set = False

    def remove(self, wake: Callable[[], None]) -> None:
        """Do not call *wake* any more, if that has not happened yet."""
        try:
            self.wakers.remove(wake)
        except ValueError:
            return  # a thread that sets the signal has taken it out

    def __repr__(self) -> str:
        return "Signal()"


class OwnerThread:
    """A thread that runs owners: itself, and the tasks of its event loop. A wait that blocks it
    blocks all of them.
    """

    __slots__ = ("has_tasks",)

    def __init__(self) -> None:
        # Whether a task has ever been an owner in it.
        self.has_tasks = False


class Owner:
    """One thread or task.

    It dies with its thread or task, so a weak reference to it shows whether the owner of a hold is
    gone. The identifier of a thread would not: the interpreter reuses it.
    """

    __slots__ = ("__weakref__", "holds", "identity", "metadata", "reference", "thread", "title")

    def __init__(self, title: str, identity: str = "", thread: OwnerThread | None = None) -> None:
        self.title = title
        # The same for all clients of its thread or task, and of no other one of its process, even
        # a later one.
        self.identity = identity
        # The thread that it runs in; None where another one can run while it waits.
        self.thread = thread
        self.reference = weakref.ref(self)
        # The label of its last claim, whether that left out what the owner holds, and its metadata.
        self.metadata: tuple[tuple[str | None, bool], str] = ((None, True), "")
        # Its holds, by the identity of the client (one for each protocol) and the name: locks of
        # the same name exclude one another within one protocol only. Permits are not reentrant, so
        # the id of their claim belongs to the key.
        self.holds: dict[tuple[str, ...], Any] = {}

    def held(self) -> list[str]:
        """The names of the locks that it holds, with whichever client."""
        return sorted({key[1] for key, hold in list(self.holds.items()) if hold.in_hand()})


class BodyInterrupter(Protocol):
    """Interrupts the body of a `with` when its lease is lost, where the driver can do that."""

    def interrupt(self) -> None:
        """Interrupt the body. Called in a step of the core; must not block."""
        ...

    def finish(self, exception: BaseException | None) -> bool:
        """Stop interrupting; return whether *exception*, which the body raised, comes from here."""
        ...


class Env(Protocol):
    """What the core reads without waiting: the clock, randomness, the calling thread or task."""

    @property
    def blocks_thread(self) -> bool:
        """Whether an operation that waits blocks the thread that it runs in."""
        ...

    def now(self) -> float:
        """Seconds on the clock of all deadlines. It is never set, and counts suspend."""
        ...

    def wall(self) -> float:
        """Unix time, to be shown; never used in a decision."""
        ...

    def random_id(self) -> str:
        """128 new random bits as 32 hexadecimal digits."""
        ...

    def random(self) -> float:
        """A number from 0 up to 1."""
        ...

    def owner(self) -> Owner:
        """The thread or task that runs this step."""
        ...

    def records_call_sites(self) -> bool:
        """Whether the places where the user acquires locks are recorded."""
        ...

    def call_site(self) -> str:
        """The line of the user's program that runs this step."""
        ...

    def caller(self) -> str:
        """The same as module:function:line."""
        ...

    def body_interrupter(self) -> BodyInterrupter | None:
        """What interrupts the body of the calling task; None where that is impossible."""
        ...

    def exit_on_sigterm(self) -> AbstractContextManager[None]:
        """While this lasts, SIGTERM raises SystemExit in the main thread, unless the program
        handles that signal itself. So what is held is released.
        """
        ...

    def host_and_pid(self) -> tuple[str, int]:
        """The name of this host and the number of this process, to be shown."""
        ...

    def process_identity(self) -> str:
        """An identity that no later process with the same number has; empty where it is unknown."""
        ...
