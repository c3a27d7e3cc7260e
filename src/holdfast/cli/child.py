"""The command that runs under the lock: a process group of its own, which we answer for."""

from __future__ import annotations

import os
import signal
import sys
from typing import TYPE_CHECKING

from holdfast.cli import codes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

PR_SET_PDEATHSIG = 1
# Python ignores these two for itself; a command expects them as a shell would leave them.
RESTORED = (signal.SIGPIPE, signal.SIGXFSZ)


class CannotRun(Exception):
    """The command could not be executed; *code* is the shell's for that."""

    def __init__(self, command: str, number: int) -> None:
        super().__init__(f"cannot run {command!r}: {os.strerror(number)}")
        missing = number == 2
        self.code = codes.NOT_FOUND if missing else codes.CANNOT_EXECUTE


def terminal() -> int | None:
    """The descriptor of the terminal whose foreground we are in, if any."""
    try:
        return 0 if os.isatty(0) and os.tcgetpgrp(0) == os.getpgrp() else None
    except OSError:
        return None


def _dying_with_us(name: str) -> Callable[[], None]:
    """What the child does to be sent a signal should we die; prepared before the fork."""
    if name.lower() == "none" or not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    number, parent = signal_named(name), os.getpid()
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def arrange() -> None:
        prctl(PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(codes.BY_SIGNAL + int(number))

    return arrange


def signal_named(text: str) -> signal.Signals:
    """The signal of that name or number; ValueError when there is none."""
    if text.isdigit():
        return signal.Signals(int(text))
    name = text.upper()
    return signal.Signals[name if name.startswith("SIG") else f"SIG{name}"]


class Child:
    """The command, from its start to its end."""

    def __init__(self, tty: int | None) -> None:
        self.tty = tty
        self.pid = 0
        self.status: int | None = None

    def start(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        descriptors: Sequence[int],
        pdeathsig: str,
        handled: Sequence[signal.Signals],
    ) -> None:
        """Start the command; CannotRun when it cannot be executed."""
        arrange = _dying_with_us(pdeathsig)
        told, tells = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            self._become(words, env, descriptors, arrange, handled, tells)
        os.close(tells)
        failure = os.read(told, 8)
        os.close(told)
        if failure:
            os.waitpid(self.pid, 0)
            self.take_terminal()
            raise CannotRun(words[0], int(failure))

    def _become(
        self,
        words: Sequence[str],
        env: Mapping[str, str],
        descriptors: Sequence[int],
        arrange: Callable[[], None],
        handled: Sequence[signal.Signals],
        tells: int,
    ) -> None:
        try:
            signal.set_wakeup_fd(-1)
            os.setpgid(0, 0)
            if self.tty is not None:
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                os.tcsetpgrp(self.tty, os.getpid())
                signal.signal(signal.SIGTTOU, signal.SIG_DFL)
            for number in (*handled, *RESTORED):
                signal.signal(number, signal.SIG_DFL)
            arrange()
            for descriptor in descriptors:
                os.set_inheritable(descriptor, True)
            os.execvpe(words[0], list(words), dict(env))
        except OSError as error:
            os.write(tells, str(error.errno).encode())
        finally:
            os._exit(codes.NOT_FOUND)

    def poll(self) -> bool:
        """Whether the command has ended; a stopped one stops us, too, as a shell expects."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._stop_with_it()
            elif pid:
                self.status = status
        return self.status is not None

    def _stop_with_it(self) -> None:
        if self.tty is None:
            return
        self.take_terminal()
        os.kill(os.getpid(), signal.SIGSTOP)
        # Continued: in the foreground again if the shell says so.
        if terminal() is not None:
            self._give_terminal(self.pid)
        self.send(signal.SIGCONT)

    def take_terminal(self) -> None:
        """Have the terminal back."""
        self._give_terminal(os.getpgrp())

    def _give_terminal(self, group: int) -> None:
        if self.tty is None:
            return
        before = signal.signal(signal.SIGTTOU, signal.SIG_IGN)
        try:
            os.tcsetpgrp(self.tty, group)
        except OSError:
            self.tty = None  # it is gone, with whoever sat before it
        finally:
            signal.signal(signal.SIGTTOU, before)

    def send(self, number: int) -> None:
        """A signal for the whole group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # all of it has ended already

    def code(self) -> int:
        """The command's exit code as a shell would tell it."""
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        return codes.BY_SIGNAL - code if code < 0 else code
