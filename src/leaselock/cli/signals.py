"""Signals as words in a pipe: whoever waits reads them, and nothing is torn out of its place.

A signal handler that raises can strike between a grant and the variable that would hold it.
Here a handler does nothing; the interpreter writes the signal's number into a pipe, at once and
in whatever thread, and one `wait` at a time reads it.
"""

from __future__ import annotations

import os
import select
import signal
from typing import TYPE_CHECKING, Self

from leaselock.cli.codes import Interrupted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import FrameType

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)
PASSED_ON = (*ENDING, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
WAKE = 0
LONGEST = 3600.0


class Signals:
    """From enter to exit, signals are noted and do nothing else."""

    def __init__(self) -> None:
        self.ending: int | None = None
        self.before: dict[int, object] = {}

    def __enter__(self) -> Self:
        self.hears, self.tells = os.pipe()
        os.set_blocking(self.hears, False)
        os.set_blocking(self.tells, False)
        self.outer = signal.set_wakeup_fd(self.tells, warn_on_full_buffer=False)
        self.note((*ENDING, signal.SIGUSR1, signal.SIGUSR2))
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)  # type: ignore[arg-type] # as `signal` gave it
        signal.set_wakeup_fd(self.outer)
        os.close(self.hears)
        os.close(self.tells)

    def note(self, numbers: Iterable[int]) -> None:
        """Note these, too. What we were started to ignore (nohup, a background job) stays so."""
        for number in numbers:
            ignored = signal.getsignal(number) is signal.SIG_IGN
            if not ignored or number == signal.SIGCHLD:
                self.before[number] = signal.signal(number, _noted) or signal.SIG_DFL

    def wait(self, seconds: float) -> list[int]:
        """The signals that have come, at the latest after *seconds*; an ending one is kept."""
        heard = select.poll()  # not select(), which knows no descriptor above 1,023
        heard.register(self.hears, select.POLLIN)
        heard.poll(min(max(0.0, seconds), LONGEST) * 1000)
        try:
            numbers = [number for number in os.read(self.hears, 4096) if number != WAKE]
        except BlockingIOError:
            return []
        if self.ending is None:
            self.ending = next((number for number in numbers if number in ENDING), None)
        return numbers

    def wake(self) -> None:
        """Let the wait end; from any thread."""
        try:
            os.write(self.tells, bytes((WAKE,)))
        except BlockingIOError:
            return  # it is full of reasons to end already

    def check(self) -> None:
        """Raise Interrupted if we have been told to end."""
        self.wait(0.0)
        if self.ending is not None:
            raise Interrupted(self.ending)


def _noted(number: int, frame: FrameType | None) -> None:
    """The pipe has it; only the default action had to be kept away."""
