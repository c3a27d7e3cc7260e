"""The terminal, and which process group may read from it and hears Ctrl-C.

The command is a group of its own, so it must be given the terminal, or it is stopped when it
reads. It gets it at once when we are in the foreground and our output goes there, too. When
the output is a pipe, another program of the same pipeline may need the terminal (a pager), so
the command gets it only if it has been stopped for want of it.
"""

from __future__ import annotations

import os
import signal
import stat


class Foreground:
    """Our controlling terminal."""

    def __init__(self, tty: int) -> None:
        self.tty = tty
        self.group = os.getpgrp()  # asked for here: in the command it is another
        self.given = _output_is_no_pipe()

    def ours(self) -> bool:
        """Whether our own group has the terminal."""
        return self._group() == self.group

    def start(self, group: int) -> None:
        """The command starts, or goes on; called in it or in us."""
        if self.given and self.ours():
            self._set(group)

    def lend(self, group: int) -> bool:
        """The command asked for the terminal: it has it now, if it was ours to give."""
        if not self.ours():
            return False
        self.given = True
        self._set(group)
        return True

    def take_back(self, group: int) -> bool:
        """Have the terminal again, if the command has it; a shell may have taken it since."""
        if self._group() != group:
            return False
        self._set(self.group)
        return True

    def _group(self) -> int:
        try:
            return os.tcgetpgrp(self.tty)
        except OSError:
            return -1  # it has hung up

    def _set(self, group: int) -> None:
        # From the background this would stop us, unless the signal for that is blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self.tty, group)
        except OSError:
            return  # it has hung up, or the group has ended: there is nothing to have
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _output_is_no_pipe() -> bool:
    try:
        return os.isatty(0) and not stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False  # stdout is closed


def foreground() -> Foreground | None:
    """The terminal that we were started on, if any; it need not be our input."""
    if os.isatty(0):
        return Foreground(0)
    try:
        return Foreground(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return None
