"""The controlling terminal, and which process group is in its foreground.

Only the foreground group may read from the terminal, and it receives Ctrl-C. The command is a
process group of its own, so it must be put into the foreground, or it is stopped when it reads.
This happens at once when our group is in the foreground and our output goes to the terminal, too.
When the output is a pipe, another program of the same pipeline may need the terminal (a pager);
then the command gets it only after it has been stopped for want of it.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import os
import signal
import stat


class Terminal:
    """The controlling terminal of this process."""

    def __init__(self, tty: int) -> None:
        self.tty = tty
        self.group = os.getpgrp()  # read here: it differs in the forked child
        self.lends_at_once = _output_is_not_a_pipe()

    def is_ours(self) -> bool:
        """Return whether our own group is in the foreground."""
        return self._foreground_group() == self.group

    def lend_on_start(self, group: int) -> None:
        """Put the command's group into the foreground when it starts or continues.

        Called in the child or in this process.
        """
        if self.lends_at_once and self.is_ours():
            self._set_foreground(group)

    def lend_on_request(self, group: int) -> bool:
        """Put the command's group into the foreground; False if our group was not in it."""
        if not self.is_ours():
            return False
        self.lends_at_once = True
        self._set_foreground(group)
        return True

    def take_back(self, group: int) -> bool:
        """Put our group into the foreground if *group* is; a shell may have done so already."""
        if self._foreground_group() != group:
            return False
        self._set_foreground(self.group)
        return True

    def _foreground_group(self) -> int:
        try:
            return os.tcgetpgrp(self.tty)
        except OSError:
            return -1  # the terminal has hung up

    def _set_foreground(self, group: int) -> None:
        # In the background, tcsetpgrp would stop us, unless SIGTTOU is blocked.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTTOU})
        try:
            os.tcsetpgrp(self.tty, group)
        except OSError:
            return  # the terminal has hung up, or the group has ended
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _output_is_not_a_pipe() -> bool:
    try:
        return os.isatty(0) and not stat.S_ISFIFO(os.fstat(1).st_mode)
    except OSError:
        return False  # stdout is closed


def controlling_terminal() -> Terminal | None:
    """Return the terminal that this process was started on, if any; stdin may be another file."""
    if os.isatty(0):
        return Terminal(0)
    try:
        return Terminal(os.open("/dev/tty", os.O_RDWR))
    except OSError:
        return None
