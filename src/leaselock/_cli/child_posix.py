"""The command that runs under the lock, on POSIX systems: a process group of its own.

Between fork and exec nothing is imported and nothing waits: other threads do not exist in the
child, and locks that they held stay locked.
"""

from __future__ import annotations

import sys

assert sys.platform != "win32"

import errno
import fcntl
import os
import signal
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.exit_codes import CannotRun
from leaselock._cli.output import say
from leaselock._cli.signals import existing
from leaselock._cli.terminal import controlling_terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from leaselock._cli.signals import Signals
    from leaselock._cli.terminal import Terminal

SHELL = "/bin/sh"
PR_SET_PDEATHSIG = 1
# The process that the kernel makes the parent of orphans: the first one of a container.
INIT = 1
# Python ignores these two for itself; the command expects their default actions.
IGNORED_BY_PYTHON = existing("SIGPIPE", "SIGXFSZ")
STANDARD = 3


def request_on_death(number: int | None) -> Callable[[], None]:
    """Return a function that, called in the child, has the kernel send it this signal when this
    process dies. For None, and where the kernel cannot do it, it does nothing.
    """
    if number is None or not sys.platform.startswith("linux"):
        return lambda: None
    import ctypes

    parent = os.getpid()
    prctl = ctypes.CDLL(None).prctl

    def request_signal() -> None:
        prctl(PR_SET_PDEATHSIG, ctypes.c_ulong(number), 0, 0, 0)
        if os.getppid() != parent:  # the parent died before prctl took effect
            os.kill(os.getpid(), number)

    return request_signal


class CommandSpec:
    """A command, and how to start it."""

    def __init__(
        self,
        argv: Sequence[str],
        death_signal: int | None,
        *,
        on_terminal: bool,
    ) -> None:
        self.argv = list(argv)
        self.request_death_signal = request_on_death(death_signal)
        self.terminal = controlling_terminal() if on_terminal else None
        self.env: Mapping[str, str] = {}
        self.inherited: tuple[int, ...] = ()
        self.reset: Sequence[int] = ()
        self.mask: Collection[int] = ()

    def check_executable(self) -> None:
        """Raise CannotRun where the command is not found or not executable, as `start` would."""
        name = self.argv[0]
        folders = [""] if os.path.dirname(name) else os.get_exec_path()
        paths = [os.path.join(folder, name) for folder in folders]
        if not any(os.access(path, os.X_OK) and not os.path.isdir(path) for path in paths):
            found = any(map(os.path.exists, paths))
            raise self._cannot_run(errno.EACCES if found else errno.ENOENT)

    def start(self, signals: Signals) -> Child:
        """Start the command; raise CannotRun when it cannot be executed, and Interrupted when a
        signal has asked this process to end. A later signal is left to the caller.
        """
        recorded = set(signals.replaced)
        self.reset = sorted(recorded)
        self.mask = signal.pthread_sigmask(signal.SIG_BLOCK, recorded)
        try:
            signals.check()
            return self._start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)

    def _start(self) -> Child:
        # Duplicate the descriptors, because a forked child closes the client's own. Place them
        # above the standard streams: if those are closed, a lock's file must not become the
        # command's stdin. Keep the order of the originals: Linux closes a dead process's files
        # from the last to the first, and clients may rely on which of them is closed first.
        originals = sorted(self.inherited)
        duplicates = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, STANDARD) for fd in originals]
        # The child writes an errno into the pipe if it cannot execute the command. A successful
        # exec closes the pipe.
        reader, writer = os.pipe()
        try:
            pid = os.fork()
            if not pid:
                self._run_in_child(duplicates, writer)
        finally:
            os.close(writer)
            for descriptor in duplicates:
                os.close(descriptor)
        with open(reader, "rb") as file:
            failure = file.read()
        child = Child(pid, self.terminal)
        if failure:
            child.reap()
            raise self._cannot_run(int(failure))
        return child

    def _run_in_child(self, duplicates: Sequence[int], writer: int) -> None:
        """Become the command; never returns."""
        failure = errno.EINVAL
        try:
            signal.set_wakeup_fd(-1)
            os.setpgid(0, 0)
            if self.terminal is not None:
                self.terminal.lend_on_start(os.getpid())
            for number in (*self.reset, *IGNORED_BY_PYTHON):
                signal.signal(number, signal.SIG_DFL)
            for descriptor in duplicates:
                os.set_inheritable(descriptor, True)
            self.request_death_signal()
            signal.pthread_sigmask(signal.SIG_SETMASK, self.mask)
            self._execute()
        except OSError as error:
            failure = error.errno or failure
        finally:
            os.write(writer, str(failure).encode())
            os._exit(exit_codes.NOT_FOUND)

    def _execute(self) -> None:
        argv, env = self.argv, dict(self.env)
        try:
            os.execvpe(argv[0], argv, env)
        except OSError as error:
            if error.errno != errno.ENOEXEC or "/" not in argv[0]:
                raise
        # A script without "#!" is run by the shell, as execvp(3) does.
        os.execve(SHELL, [SHELL, *argv], env)

    def _cannot_run(self, number: int) -> CannotRun:
        missing = number == errno.ENOENT
        code = exit_codes.NOT_FOUND if missing else exit_codes.CANNOT_EXECUTE
        return CannotRun(f"cannot run {self.argv[0]!r}: {os.strerror(number)}", code)


def shell_command(line: str) -> list[str]:
    """Return the words of the command that has the user's shell execute a line."""
    return [os.environ.get("SHELL") or SHELL, "-c", line]


def reap_orphans(command: int | None = None) -> None:
    """Reap the ended processes that this process inherited as process 1 of a container: the
    children of its command that outlived their parent, and those of `docker exec`. The *command*
    itself is left to `Child.reap`.

    Elsewhere another process inherits orphans, and a child of this one may belong to other code.
    """
    if os.getpid() != INIT or not hasattr(os, "waitid"):
        return
    try:
        # The command is the only child that other code waits for. Where it has ended, the rest
        # waits until it is reaped.
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == command:
                return
            os.waitpid(ended.si_pid, 0)
    except ChildProcessError:
        return  # there are no children


class Child:
    """The running command, up to its end."""

    def __init__(self, pid: int, terminal: Terminal | None) -> None:
        self.pid = pid
        self.terminal = terminal
        # How it ended, if `poll` has reaped it.
        self.status: int | None = None

    def poll(self) -> tuple[bool, int]:
        """Return whether the command has ended, and the signal that has stopped it, or 0.

        An ended command keeps its pid until it is reaped, so its group can still be signalled.
        """
        if not hasattr(os, "waitid"):  # macOS, before Python 3.13
            return self._poll_and_reap()
        # Ask for ended and stopped children at once: asked for stopped ones alone, Linux fails
        # for a child that has just died.
        wanted = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
        change = os.waitid(os.P_PID, self.pid, wanted)
        if change is None or change.si_code != os.CLD_STOPPED:
            return change is not None, 0
        try:
            stopped = os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WNOHANG)
        except ChildProcessError:
            return True, 0
        return False, 0 if stopped is None else stopped.si_status

    def _poll_and_reap(self) -> tuple[bool, int]:
        """The same where a child cannot be asked for its end without reaping it. Its pid stays the
        number of the group as long as another process is in it.
        """
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                return False, os.WSTOPSIG(status)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None, 0

    def send(self, number: int) -> None:
        """Send a signal to the whole group."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:
            return  # every process of the group has ended
        except PermissionError:
            say("the command cannot be sent a signal: it now runs as another user")

    def handle_stop(self, number: int) -> None:
        """Respond to the command's stop: lend it the terminal if it needs that, else stop, too.

        A shell waits for this process, not for the command, so it must see this process stop.
        Where no shell could continue it, the kernel does not stop it either.
        """
        terminal = self.terminal
        needs_terminal = number in (signal.SIGTTIN, signal.SIGTTOU)
        if needs_terminal and terminal is not None and terminal.lend_on_request(self.pid):
            self.send(signal.SIGCONT)
        elif needs_terminal or number == signal.SIGTSTP:
            self._stop_this_process(number, needs_terminal=needs_terminal)

    def _stop_this_process(self, number: int, *, needs_terminal: bool) -> None:
        terminal = self.terminal
        # A stop by the terminal (Ctrl-Z) concerns the whole pipeline. A signal sent to the command
        # alone stops no other program of it.
        from_terminal = terminal is not None and terminal.take_back(self.pid)
        before = signal.signal(number, signal.SIG_DFL)
        if from_terminal or (needs_terminal and terminal is not None):
            os.killpg(os.getpgrp(), number)
        else:
            os.kill(os.getpid(), number)
        signal.signal(number, before)

    def resume(self) -> None:
        """Continue the command after this process was continued."""
        if self.terminal is not None:
            self.terminal.lend_on_start(self.pid)
        self.send(signal.SIGCONT)

    def reap(self) -> int:
        """Reap the ended command and return its exit code, or -N when signal N ended it."""
        if self.terminal is not None:
            self.terminal.take_back(self.pid)
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.status
