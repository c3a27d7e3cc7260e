"""The environment of threads and asyncio: clocks, randomness, host and process."""

from __future__ import annotations

import os
import sys
import time
from _tracemalloc import is_tracing  # tracemalloc itself takes longer to load
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from leaselock._core.contract.effects import FOREVER
from leaselock.process_identity import host_name, own_identity

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from types import FrameType

    from leaselock._core.client.client_core import ClientCore
    from leaselock._core.contract.effects import Operation

# Linux's boot clock counts suspend, which the monotonic clock does not (hazard B4).
_CLOCK = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", 0))

# The longest timeout of one wait for a lock or a selector. Longer waits are made of several.
LONGEST_WAIT = 3600.0

# Seconds on the clock of all deadlines. It is read several times with each acquire, so there is no
# Python function in between.
# On Windows it is QueryPerformanceCounter, which counts sleep. Until Python 3.13 the monotonic
# clock is another one there, which moves every 16 ms.
now = partial(time.clock_gettime, _CLOCK) if hasattr(time, "clock_gettime") else time.perf_counter


def time_left(until: float) -> float:
    """Seconds until *until*, at most LONGEST_WAIT."""
    return max(0.0, min(until - now(), LONGEST_WAIT)) if until < FOREVER else LONGEST_WAIT


class SystemEnv:
    """The part of `Env` that threads and asyncio have in common."""

    now = staticmethod(now)
    wall = staticmethod(time.time)

    def random_id(self) -> str:
        """128 random bits of the kernel, so a fork does not repeat them."""
        return os.urandom(16).hex()

    # In Python's development mode, and with tracemalloc.
    records_call_sites = staticmethod(partial(bool, 1) if sys.flags.dev_mode else is_tracing)

    def call_site(self) -> str:
        """The line of the user's program that runs this step."""
        frame = _users_frame()
        code = frame.f_code
        return f'  File "{code.co_filename}", line {frame.f_lineno}, in {code.co_name}'

    def caller(self) -> str:
        """The same as module:function:line."""
        frame = _users_frame()
        module = frame.f_globals.get("__name__", "")
        return f"{module}:{frame.f_code.co_qualname}:{frame.f_lineno}"

    def exit_on_sigterm(self) -> AbstractContextManager[None]:
        """Exit at SIGTERM in the main thread, unless the program handles that signal itself."""
        return TERMINATION.exits()

    def random(self) -> float:
        """A number from 0 up to 1."""
        return int.from_bytes(os.urandom(4), "big") / 2**32

    def host_and_pid(self) -> tuple[str, int]:
        """The name of this host and the number of this process."""
        return host_name(), os.getpid()

    process_identity = staticmethod(own_identity)


class Driver(SystemEnv):
    """What a driver knows of the client whose operations it runs."""

    awaited: bool
    """Whether what it runs is awaited."""

    def __init__(self) -> None:
        # What the client does when its holds are lost with a fork or a loop.
        self.forgotten: Callable[[str, bool], None] = _nothing
        # What the client does when an operation was interrupted.
        self.look_again: Callable[[], None] = _no_client
        # The last operation of the client.
        self.last: Callable[[], Operation[None]] | None = None
        # The names of the locks that the client has not released.
        self.unreleased: Callable[[], list[str]] = list
        # The URL of the store, for people; and as they typed it.
        self.store = self.typed = ""

    def serve(self, core: ClientCore) -> None:
        """Run the operations of this client from now on."""
        self.forgotten, self.last, self.unreleased = core.abandon, core.close, core.unreleased
        self.look_again = core.look_again
        self.store = core.store


def _no_client() -> None:
    """No client uses the driver."""


def _nothing(reason: str, ours: bool) -> None:
    """No client uses the driver."""


class Termination:
    """SIGTERM as SystemExit, while at least one process asks for it."""

    def __init__(self) -> None:
        self.users = 0

    @contextmanager
    def exits(self) -> Iterator[None]:
        """Exit at SIGTERM in the main thread, unless the program handles that signal itself."""
        import signal
        import threading

        in_main = threading.get_ident() == threading.main_thread().ident
        handled = signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, _exit)
        if handled or not in_main:
            yield
            return
        signal.signal(signal.SIGTERM, _exit)
        self.users += 1
        try:
            yield
        finally:
            self.users -= 1
            if not self.users and signal.getsignal(signal.SIGTERM) is _exit:
                signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _exit(number: int, frame: FrameType | None) -> None:
    # The exit code of a process that a signal has ended, as shells show it.
    raise SystemExit(128 + number)


TERMINATION = Termination()


def _users_frame() -> FrameType:
    frame = sys._getframe(2)
    while (above := frame.f_back) is not None and _ours(frame):
        frame = above
    return frame


def _ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).partition(".")[0] == "leaselock"


def was_closed(operation: object) -> bool:
    """Whether *operation* was closed, perhaps before its first step."""
    return getattr(operation, "cr_frame", operation) is None
