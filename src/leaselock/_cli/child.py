"""The command that runs under the lock: its environment, how it is started, and how it ends.

The command is a process group of its own. Between fork and exec nothing is imported and nothing
waits: other threads do not exist in the child, and locks that they held stay locked.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from leaselock._api.connect import may_hold_secret, with_absolute_path
from leaselock._cli import exit_codes
from leaselock._cli.exit_codes import CannotRun, Usage
from leaselock._cli.output import say
from leaselock._cli.several import names_of
from leaselock._cli.store import OUTER_URL, URL, URL_FILE

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from leaselock import Lease
    from leaselock._cli.several import SeveralLeases
    from leaselock._cli.terminal import Terminal

PR_SET_PDEATHSIG = 1
# The process that the kernel makes the parent of orphans: the first one of a container.
INIT = 1
# Python ignores these two for itself; the command expects their default actions.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
STANDARD = 3
STACK = "LEASELOCK_STACK"
UNLOCKED = "LEASELOCK_UNLOCKED"
SLOT = "LEASELOCK_SLOT"
STACK_STORES = "LEASELOCK_STACK_BACKENDS"
# Names have no control characters, but may have spaces.
STACK_SEPARATOR = "\n"


def enclosing_locks() -> list[tuple[str, str]]:
    """Return the locks under which this process runs, the outermost first: name and store."""
    names, stores = (
        [word for word in os.environ.get(variable, "").split(STACK_SEPARATOR) if word]
        for variable in (STACK, STACK_STORES)
    )
    return list(zip(names, stores, strict=False))


def check_nesting(name: str, store: str, timeout: float | None, permits: int = 1) -> None:
    """Refuse to wait for a lock that is held around this command, or for a permit when all of them
    are: the enclosing command would hold it until this one ends.
    """
    if timeout == 0:
        return
    held = enclosing_locks().count((name, store))
    if held >= permits:
        what = "the lock" if permits == 1 else f"all {permits} permits of the semaphore"
        raise Usage(
            f"this runs under {what} {name!r} of the same store ({store}) already: waiting for it "
            "would never end"
        )


def command_environment(
    lease: Lease | SeveralLeases, length: float, backend: str
) -> Mapping[str, str]:
    """Return this process's environment with the lock added, and without a URL with a secret."""
    env = dict(os.environ)
    if may_hold_secret(env.get(URL, "")):
        del env[URL]
    elif URL in env:
        # The command may run in another directory.
        env[URL] = with_absolute_path(env[URL])
    if env.get(URL_FILE):
        env[URL_FILE] = os.path.abspath(env[URL_FILE])
    held = [*enclosing_locks(), *((name, backend) for name in names_of(lease))]
    # A command that runs without the lock is told by this, and by the token 0. It holds nothing, so
    # the command may wait for the lock itself.
    env.pop(UNLOCKED, None)
    if lease.unlocked:
        env[UNLOCKED] = "1"
        held = enclosing_locks()
    names, stores = zip(*held, strict=True) if held else ((), ())
    # Not that of an outer command.
    env.pop(SLOT, None)
    if lease.slots:
        env[SLOT] = str(lease.slots[0])
    return env | {
        "LEASELOCK_NAME": lease.name,
        "LEASELOCK_TOKEN": str(lease.token),
        "LEASELOCK_LEASE": f"{length:g}",
        "LEASELOCK_HELD_SINCE": f"{time.time():.6f}",
        OUTER_URL: backend,
        STACK: STACK_SEPARATOR.join(names),
        STACK_STORES: STACK_SEPARATOR.join(stores),
    }


def parse_signal(text: str) -> signal.Signals:
    """Return the signal of that name or number; raise Usage when there is none."""
    name = text.upper().removeprefix("SIG")
    try:
        return signal.Signals(int(text)) if text.isdecimal() else signal.Signals[f"SIG{name}"]
    except (KeyError, ValueError):
        raise Usage(f"{text!r} is not the name of a signal, such as TERM or KILL") from None


def parent_death_signal(name: str) -> Callable[[], None]:
    """Return a function that, called in the child, has the kernel send it the signal *name* when
    this process dies. For "none", and where the kernel cannot do it, it does nothing.
    """
    number = None if name.lower() == "none" else int(parse_signal(name))
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
        request_death_signal: Callable[[], None],
        terminal: Terminal | None,
    ) -> None:
        self.argv = list(argv)
        self.request_death_signal = request_death_signal
        self.terminal = terminal
        self.env: Mapping[str, str] = {}
        self.inherited: tuple[int, ...] = ()
        self.reset: Sequence[int] = ()
        self.mask: Collection[int] = ()

    def start(self) -> Child:
        """Start the command; raise CannotRun when it cannot be executed.

        The caller has blocked the signals in *reset*; the command starts with *mask*.
        """
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
        os.execve("/bin/sh", ["/bin/sh", *argv], env)

    def _cannot_run(self, number: int) -> CannotRun:
        missing = number == errno.ENOENT
        code = exit_codes.NOT_FOUND if missing else exit_codes.CANNOT_EXECUTE
        return CannotRun(f"cannot run {self.argv[0]!r}: {os.strerror(number)}", code)


def reap_orphans(command: int | None = None) -> None:
    """Reap the ended processes that this process inherited as process 1 of a container: the
    children of its command that outlived their parent, and those of `docker exec`. The *command*
    itself is left to `Child.reap`.

    Elsewhere another process inherits orphans, and a child of this one may belong to other code.
    """
    if os.getpid() != INIT:
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

    def poll(self) -> tuple[bool, int]:
        """Return whether the command has ended, and the signal that has stopped it, or 0.

        An ended command keeps its pid until it is reaped, so its group can still be signalled.
        """
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
        """Reap the ended command and return its exit code as a shell reports it."""
        if self.terminal is not None:
            self.terminal.take_back(self.pid)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return exit_codes.BY_SIGNAL - code if code < 0 else code
