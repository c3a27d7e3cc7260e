"""Signals delivered through a pipe, to be read at a safe point instead of interrupting the code.

A signal handler that raises can interrupt the code between a grant and the assignment of the
lease. Here the handler does nothing: the interpreter writes the signal's number into a pipe, at
once and whatever the main thread does, and `wait` reads it. Only one thread waits at a time.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Self

from leaselock._cli.exit_codes import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
FORWARDED = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
# A byte in the pipe that is no signal's number.
WAKE = 0
LONGEST_WAIT = 3600.0


class Signals:
    """Records signals from enter to exit, in place of their default actions."""

    def __init__(self) -> None:
        self.ending: int | None = None
        self.replaced: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.reader, self.writer = os.pipe()
        os.set_blocking(self.reader, False)
        os.set_blocking(self.writer, False)
        self.outer = signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        self.record((*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.replaced.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as `signal` returned it
        signal.set_wakeup_fd(self.outer)
        os.close(self.reader)
        os.close(self.writer)

    def record(self, numbers: Iterable[int]) -> None:
        """Record these signals, too. Those ignored from the start (nohup, `&`) stay ignored."""
        for number in numbers:
            if number in self.replaced:
                continue
            ignored = signal.getsignal(number) is signal.SIG_IGN
            if not ignored or number == signal.SIGCHLD:
                self.replaced[number] = signal.signal(number, _do_nothing) or signal.SIG_DFL

    def wait(self, seconds: float) -> list[int]:
        """Wait at most *seconds* for signals and return them; keep the first ending one."""
        poll = select.poll()  # select() fails for descriptors above 1,023
        poll.register(self.reader, select.POLLIN)
        poll.poll(min(max(0.0, seconds), LONGEST_WAIT) * 1000)
        try:
            numbers = [number for number in os.read(self.reader, 4096) if number != WAKE]
        except BlockingIOError:
            return []
        if self.ending is None:
            self.ending = next((number for number in numbers if number in ENDING), None)
        return numbers

    def wake(self) -> None:
        """End the current wait; may be called in any thread."""
        try:
            os.write(self.writer, bytes((WAKE,)))
        except BlockingIOError:
            return  # the pipe is full, so the wait ends anyway

    def check(self) -> None:
        """Raise Interrupted if a signal has asked this process to end."""
        self.wait(0.0)
        if self.ending is not None:
            raise Interrupted(self.ending)


def _do_nothing(number: int, frame: FrameType | None) -> None:
    """Replace the default action; the interpreter has written the number into the pipe."""
