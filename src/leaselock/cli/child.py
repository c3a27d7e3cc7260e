"""The command that runs under the lock: a process group of its own, which we answer for.

Between fork and exec nothing is imported and nothing waits, for the other threads are gone and
what they had locked stays locked.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import sys
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.codes import CannotRun, Usage
from leaselock.cli.voice import say

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from leaselock.cli.foreground import Foreground

PR_SET_PDEATHSIG = 1
# Python ignores these two for itself; a command expects them as a shell would leave them.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
STANDARD = 3


def signal_named(text: str) -> signal.Signals:
    """The signal of that name or number; Usage when there is none."""
    name = text.upper().removeprefix("SIG")
    try:
        return signal.Signals(int(text)) if text.isdecimal() else signal.Signals[f"SIG{name}"]
    except (KeyError, ValueError):
        raise Usage(f"{text!r} is not the name of a signal, such as TERM or KILL") from None


def tied_to_us(name: str) -> Callable[[], None]:
    """What the child does to be sent the signal *name* should we die before it."""
    number = None if name.lower() == "none" else int(signal_named(name))
    if number is None or not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def tie() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
        if os.getppid() != parent:  # we died before it could be told
            os.kill(os.getpid(), number)

    return tie


class Plan:
    """A command, and how it is to be started."""

    def __init__(
        self, words: Sequence[str], tie: Callable[[], None], foreground: Foreground | None
    ) -> None:
        self.words = list(words)
        self.tie = tie
        self.foreground = foreground
        self.env: Mapping[str, str] = {}
        self.inherited: tuple[int, ...] = ()
        self.reset: Sequence[int] = ()
        self.mask: Collection[int] = ()

    def start(self) -> Child:
        """Start the command; CannotRun when it cannot be executed.

        The caller has blocked the signals in *reset*; the command starts with *mask*.
        """
        # Duplicates: a forked child closes what is the client's own. Above the standard ones,
        # which may be closed, for a lock's file must not become the command's input. In the
        # order of the originals, for Linux lets go of a dead process's files from the last to
        # the first, and of these, others may rely on which goes first.
        originals = sorted(self.inherited)
        spare = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STANDARD) for fd in originals]
        told, tells = os.pipe()
        try:
            pid = os.fork()
            if not pid:
                self._become(spare, tells)
        finally:
            os.close(tells)
            for descriptor in spare:
                os.close(descriptor)
        with open(told, "rb") as file:
            failure = file.read()
        child = Child(pid, self.foreground)
        if failure:
            child.reap()
            raise self._cannot(int(failure))
        return child

    def _become(self, spare: Sequence[int], tells: int) -> None:
        """In the child: never returns."""
        failure = errno.EINVAL
        try:
            signal.set_wakeup_fd(-1)
            os.setpgid(0, 0)
            if self.foreground is not None:
                self.foreground.start(os.getpid())
            for number in (*self.reset, *IGNORED_BY_PYTHON):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in spare:
                os.set_inheritable(descriptor, True)
            self.tie()
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            self._execute()
        except OSError as error:
            failure = error.errno or failure
        finally:
            os.write(tells, str(failure).encode())
            os._exit(codes.NOT_FOUND)

    def _execute(self) -> None:
        words, env = self.words, dict(self.env)
        try:
            os.execvpe(words[0], words, env)
        except OSError as error:
            if error.errno != errno.ENOEXEC or "/" not in words[0]:
                raise
        # A script without a first line that says by what: the shell's, as in execvp(3).
        os.execve("/bin/sh", ["/bin/sh", *words], env)

    def _cannot(self, number: int) -> CannotRun:
        code = codes.NOT_FOUND if number == errno.ENOENT else codes.CANNOT_EXECUTE
        return CannotRun(f"cannot run {self.words[0]!r}: {os.strerror(number)}", code)


class Child:
    """The running command, up to its end."""

    def __init__(self, pid: int, foreground: Foreground | None) -> None:
        self.pid = pid
        self.foreground = foreground

    def news(self) -> tuple[bool, int]:
        """Whether the command has ended; and the signal that has stopped it, or 0.

        An ended command keeps its number until it is reaped, so its group can be signalled.
        """
        # Asked for stopped children alone, Linux says of one that has just died that there is
        # none: so it is looked for both at once.
        wanted = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        seen = os.waitid(os.P_PID, self.pid, wanted)
        if seen is None or seen.si_code != os.CLD_STOPPED:
            return seen is not None, 0
        try:
            stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return True, 0
        return False, 0 if stopped is None else stopped.si_status

    def send(self, number: int) -> None:
        """A signal for the whole group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # all of it has ended
        except PermissionError:
            say("the command cannot be sent a signal: it has become another user's")

    def stopped(self, number: int) -> None:
        """The command was stopped: give it the terminal if it wants that; else stop, too.

        A shell waits for us, not for the command, so it must see us stop. Where no shell could
        continue us, the system does not let us stop either.
        """
        terminal = self.foreground
        wants_terminal = number in (signal.SIGTTIN, signal.SIGTTOU)
        if wants_terminal and terminal is not None and terminal.lend(self.pid):
            self.send(signal.SIGCONT)
        elif wants_terminal or number == signal.SIGTSTP:
            self._stop_with_it(number, wants_terminal)

    def _stop_with_it(self, number: int, wants_terminal: bool) -> None:
        terminal = self.foreground
        # What the terminal does to a command it does to all of a pipeline. What somebody has
        # sent to us alone stops nobody else.
        typed = terminal is not None and terminal.take_back(self.pid)
        before = signal.signal(number, signal.SIG_DFL)
        if typed or (wants_terminal and terminal is not None):
            os.killpg(os.getpgrp(), number)
        else:
            os.kill(os.getpid(), number)
        signal.signal(number, before)

    def go_on(self) -> None:
        """We were continued, so the command is."""
        if self.foreground is not None:
            self.foreground.start(self.pid)
        self.send(signal.SIGCONT)

    def reap(self) -> int:
        """The exit code of the ended command, as a shell would tell it."""
        if self.foreground is not None:
            self.foreground.take_back(self.pid)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return codes.BY_SIGNAL - code if code < 0 else code
