"""Signals delivered through a pipe, to be read at a safe point instead of interrupting the code.

A signal handler that raises can interrupt the code between a grant and the assignment of the
lease. Here the handler does nothing: the interpreter writes the signal's number into a pipe, at
once and whatever the main thread does, and `wait` reads it. Only one thread waits at a time.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from typing import TYPE_CHECKING, Self

from leaselock._cli.exit_codes import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

PR_SET_DUMPABLE = 4


def existing(*names: str) -> tuple[signal.Signals, ...]:
    """Those of the signals that this system has."""
    return tuple(getattr(signal, name) for name in names if hasattr(signal, name))


# SIGBREAK is Ctrl-Break on Windows, and the end of the user's session.
ENDING = existing("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM", "SIGBREAK")
FORWARDED = (*ENDING, *existing("SIGUSR1", "SIGUSR2", "SIGWINCH"))
CHILD_CHANGED = existing("SIGCHLD")
# Signals that Windows lacks have their numbers on Linux.
KILL: int = getattr(signal, "SIGKILL", 9)
CONTINUE: int = getattr(signal, "SIGCONT", 18)
STOP_BY_TERMINAL: int = getattr(signal, "SIGTSTP", 20)
# Their default action writes no core.
WITHOUT_CORE = existing("SIGHUP", "SIGINT", "SIGKILL", "SIGPIPE", "SIGTERM")
# A byte in the pipe that is no signal's number.
WAKE = 0
LONGEST_WAIT = 3600.0


if sys.platform == "win32":
    import socket

    class Pipe:
        """Bytes from `write` to `read`, which do not block. On Windows only sockets can be waited
        for.
        """

        def __init__(self) -> None:
            self.reader, self.writer = socket.socketpair()
            self.reader.setblocking(False)
            self.writer.setblocking(False)
            self.number = self.writer.fileno()

        def wait(self, seconds: float) -> None:
            """Wait until there is something to read."""
            select.select([self.reader], [], [], seconds)

        def read(self) -> bytes:
            """Return what there is; BlockingIOError if there is nothing."""
            return self.reader.recv(4096)

        def write(self, data: bytes) -> None:
            """Write; BlockingIOError if there is no room."""
            self.writer.send(data)

        def close(self) -> None:
            """Close both ends."""
            self.reader.close()
            self.writer.close()

else:

    class Pipe:
        """Bytes from `write` to `read`, which do not block."""

        def __init__(self) -> None:
            self.reader, self.number = os.pipe()
            os.set_blocking(self.reader, False)
            os.set_blocking(self.number, False)

        def wait(self, seconds: float) -> None:
            """Wait until there is something to read."""
            poll = select.poll()  # select() fails for descriptors above 1,023
            poll.register(self.reader, select.POLLIN)
            poll.poll(seconds * 1000)

        def read(self) -> bytes:
            """Return what there is; BlockingIOError if there is nothing."""
            return os.read(self.reader, 4096)

        def write(self, data: bytes) -> None:
            """Write; BlockingIOError if there is no room."""
            os.write(self.number, data)

        def close(self) -> None:
            """Close both ends."""
            os.close(self.reader)
            os.close(self.number)


class Signals:
    """Records signals from enter to exit, in place of their default actions."""

    def __init__(self) -> None:
        self.ending: int | None = None
        self.replaced: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.pipe = Pipe()
        self.outer = signal.set_wakeup_fd(self.pipe.number, warn_on_full_buffer=False)
        self.record((*ENDING, *existing("SIGUSR1", "SIGUSR2"), *CHILD_CHANGED))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.replaced.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as `signal` returned it
        signal.set_wakeup_fd(self.outer)
        self.pipe.close()

    def record(self, numbers: Iterable[int]) -> None:
        """Record these signals, too. Those ignored from the start (nohup, `&`) stay ignored."""
        for number in numbers:
            if number in self.replaced:
                continue
            ignored = signal.getsignal(number) is signal.SIG_IGN
            if not ignored or number in CHILD_CHANGED:
                self.replaced[number] = signal.signal(number, _do_nothing) or signal.SIG_DFL

    def wait(self, seconds: float) -> list[int]:
        """Wait at most *seconds* for signals and return them; keep the first ending one."""
        self.pipe.wait(min(max(0.0, seconds), LONGEST_WAIT))
        try:
            numbers = [number for number in self.pipe.read() if number != WAKE]
        except BlockingIOError:
            return []
        if self.ending is None:
            self.ending = next((number for number in numbers if number in ENDING), None)
        return numbers

    def wake(self) -> None:
        """End the current wait; may be called in any thread."""
        try:
            self.pipe.write(bytes((WAKE,)))
        except BlockingIOError:
            return  # the pipe is full, so the wait ends anyway

    def check(self) -> None:
        """Raise Interrupted if a signal has asked this process to end."""
        self.wait(0.0)
        if self.ending is not None:
            raise Interrupted(self.ending)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Replace the default action; the interpreter has written the number into the pipe."""


def end_this_process(number: int) -> None:
    """End this process by the default action of a signal. Return where there is no such end: in
    process 1 of a container, which the kernel protects from it, and on Windows.
    """
    if sys.platform == "win32":
        return
    if number not in WITHOUT_CORE:
        _prevent_core_dump()
    if number != signal.SIGKILL:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
    signal.raise_signal(number)


def _prevent_core_dump() -> None:
    """A core of this process would say nothing of the command, which has left its own."""
    if sys.platform != "win32":
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform.startswith("linux"):
        import ctypes

        # The kernel ignores that limit where it pipes cores to a program.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
