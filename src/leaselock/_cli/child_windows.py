"""The command that runs under the lock, on Windows: a process group in a job object.

Windows ends all processes of the job when the last handle of the job is closed, at the latest with
this process. So the command never outlives its wrapper, whatever ends that.
"""

from __future__ import annotations

import sys

assert sys.platform == "win32"

import _winapi
import ctypes
import msvcrt
import os
import re
import shutil
import signal
import subprocess
import threading
from ctypes import wintypes
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.exit_codes import CannotRun
from leaselock._cli.output import say
from leaselock._cli.signals import KILL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leaselock._cli.signals import Signals

CREATE_SUSPENDED, NEW_GROUP, UNICODE_ENVIRONMENT = 0x4, 0x200, 0x400
EXTENDED_LIMITS, KILL_ON_JOB_CLOSE = 9, 0x2000
USE_HANDLES = 0x100
NO_HANDLE = -1
NOT_FOUND = (2, 3)
# Each of these is Ctrl-Break for the command.
ASKING = (signal.SIGINT, signal.SIGTERM, signal.SIGBREAK)
# No commands of the registry, no delayed expansion of "!"; what follows is one quoted line.
SHELL_OPTIONS = ["/d", "/e:on", "/v:off", "/s", "/c"]
BATCH_FILES = (".bat", ".cmd")
# Characters that the shell of a batch file would change, even between quotes.
CHANGED = re.compile(r'["%\r\n\0]')
# Words that it takes as they are without quotes.
UNQUOTED = re.compile(r"[\w#$*+./:?@\\-]+")
# The exit code of a process that was ended by the job: that of a shell for SIGKILL.
ENDED = 128 + KILL


class _Basic(ctypes.Structure):
    _fields_ = (
        ("PerProcessUserTimeLimit", ctypes.c_int64),
        ("PerJobUserTimeLimit", ctypes.c_int64),
        ("LimitFlags", wintypes.DWORD),
        ("MinimumWorkingSetSize", ctypes.c_size_t),
        ("MaximumWorkingSetSize", ctypes.c_size_t),
        ("ActiveProcessLimit", wintypes.DWORD),
        ("Affinity", ctypes.c_size_t),
        ("PriorityClass", wintypes.DWORD),
        ("SchedulingClass", wintypes.DWORD),
    )


class _Extended(ctypes.Structure):
    _fields_ = (
        ("Basic", _Basic),
        ("Io", ctypes.c_uint64 * 6),
        ("ProcessMemoryLimit", ctypes.c_size_t),
        ("JobMemoryLimit", ctypes.c_size_t),
        ("PeakProcessMemoryUsed", ctypes.c_size_t),
        ("PeakJobMemoryUsed", ctypes.c_size_t),
    )


_kernel = ctypes.WinDLL("kernel32", use_last_error=True)
_kernel.CreateJobObjectW.restype = wintypes.HANDLE
_kernel.CreateJobObjectW.argtypes = (wintypes.LPVOID, wintypes.LPCWSTR)
_kernel.SetInformationJobObject.argtypes = (
    *(wintypes.HANDLE, ctypes.c_int, wintypes.LPVOID, wintypes.DWORD),
)
_kernel.AssignProcessToJobObject.argtypes = (wintypes.HANDLE, wintypes.HANDLE)
_kernel.TerminateJobObject.argtypes = (wintypes.HANDLE, wintypes.UINT)
_kernel.ResumeThread.argtypes = (wintypes.HANDLE,)
_kernel.GenerateConsoleCtrlEvent.argtypes = (wintypes.DWORD, wintypes.DWORD)


def _check(result: int) -> None:
    if not result:
        raise ctypes.WinError(ctypes.get_last_error())


class Job:
    """A job whose processes end with it, unless `release` is called before."""

    def __init__(self) -> None:
        self.handle = _kernel.CreateJobObjectW(None, None)
        _check(self.handle)
        self._limit(KILL_ON_JOB_CLOSE)

    def _limit(self, flags: int) -> None:
        limits = _Extended()
        limits.Basic.LimitFlags = flags
        size = ctypes.sizeof(limits)
        _check(
            _kernel.SetInformationJobObject(
                self.handle, EXTENDED_LIMITS, ctypes.byref(limits), size
            )
        )

    def add(self, process: int) -> None:
        """Put a process into it, with all that it will start."""
        _check(_kernel.AssignProcessToJobObject(self.handle, process))

    def end(self) -> None:
        """End all of its processes."""
        _kernel.TerminateJobObject(self.handle, ENDED)

    def release(self) -> None:
        """Let its processes live on."""
        self._limit(0)
        _winapi.CloseHandle(self.handle)


class CommandSpec:
    """A command, and how to start it. It always ends with this process: no signal is chosen."""

    def __init__(self, argv: Sequence[str], death_signal: int | None, *, on_terminal: bool) -> None:
        self.argv = list(argv)
        self.env: Mapping[str, str] = {}
        self.inherited: tuple[int, ...] = ()

    def check_executable(self) -> None:
        """Raise CannotRun where the command is not found, or a batch file would not get its words
        as they are, as `start` would.
        """
        self._program_and_line()

    def _program_and_line(self) -> tuple[str, str]:
        """Return the file of the program, and the command line with it."""
        name = self.argv[0]
        # Windows itself would look into the current folder first, and know .exe only.
        program = shutil.which(name)
        if program is None:
            raise CannotRun(f"cannot run {name!r}: not found", exit_codes.NOT_FOUND)
        if self.argv[1:-1] == SHELL_OPTIONS:  # the shell takes the rest as it is
            return program, _for_shell(name, self.argv[-1])
        if not program.lower().endswith(BATCH_FILES):
            return program, subprocess.list2cmdline(self.argv)
        words = [program, *self.argv[1:]]
        if changed := next((word for word in words if CHANGED.search(word)), None):
            raise CannotRun(
                f"cannot run {name!r}: {changed!r} cannot be passed to a batch file, whose shell "
                'would change a ", a % or a line break',
                exit_codes.CANNOT_EXECUTE,
            )
        # Between quotes it takes every other character as it is.
        quoted = [word if UNQUOTED.fullmatch(word) else f'"{word}"' for word in words]
        return command_shell(), _for_shell(command_shell(), " ".join(quoted))

    def start(self, signals: Signals) -> Child:
        """Start the command; raise CannotRun when it cannot be executed, and Interrupted when a
        signal has asked this process to end.
        """
        signals.check()
        program, line = self._program_and_line()
        startup = subprocess.STARTUPINFO()
        startup.dwFlags = USE_HANDLES
        standard = [_inheritable(number) for number in (0, 1, 2)]
        startup.hStdInput, startup.hStdOutput, startup.hStdError = standard
        locks = [msvcrt.get_osfhandle(file) for file in self.inherited]
        for handle in locks:
            os.set_handle_inheritable(handle, True)
        inherited = [*{handle for handle in standard if handle != NO_HANDLE}, *locks]
        startup.lpAttributeList = {"handle_list": inherited}
        job = Job()
        if sys.stdout is not None:
            sys.stdout.flush()
        flags = CREATE_SUSPENDED | NEW_GROUP | UNICODE_ENVIRONMENT
        try:
            process, thread, pid, _ = _winapi.CreateProcess(
                *(program, line, None, None, True, flags, dict(self.env)),
                *(None, startup),
            )
        except OSError as error:
            missing = error.winerror in NOT_FOUND
            code = exit_codes.NOT_FOUND if missing else exit_codes.CANNOT_EXECUTE
            raise CannotRun(f"cannot run {self.argv[0]!r}: {error.strerror}", code) from error
        finally:
            for handle in locks:
                os.set_handle_inheritable(handle, False)
        # It is suspended, so it has started no process that is not in the job.
        job.add(process)
        _kernel.ResumeThread(thread)
        _winapi.CloseHandle(thread)
        return Child(pid, process, job, signals.wake)


def command_shell() -> str:
    """Return the path of the command shell."""
    return os.environ.get("COMSPEC") or "cmd.exe"


def shell_command(line: str) -> list[str]:
    """Return the words of the command that has the shell execute a line."""
    return [command_shell(), *SHELL_OPTIONS, line]


def _for_shell(shell: str, line: str) -> str:
    return f'{subprocess.list2cmdline([shell, *SHELL_OPTIONS])} "{line}"'


def _inheritable(number: int) -> int:
    try:
        handle = msvcrt.get_osfhandle(number)
        os.set_handle_inheritable(handle, True)
    except OSError:
        return NO_HANDLE
    return handle


class Child:
    """The running command, up to its end."""

    def __init__(self, pid: int, process: int, job: Job, wake: Callable[[], None]) -> None:
        self.pid = pid
        self.process = process
        self.job = job
        threading.Thread(target=self._await_end, args=(wake,), daemon=True).start()

    def _await_end(self, wake: Callable[[], None]) -> None:
        _winapi.WaitForSingleObject(self.process, _winapi.INFINITE)
        wake()

    def poll(self) -> tuple[bool, int]:
        """Return whether the command has ended. It cannot be stopped on this system."""
        return _winapi.WaitForSingleObject(self.process, 0) == 0, 0

    def send(self, number: int) -> None:
        """End all processes of the command, or ask them to end: every signal is Ctrl-Break."""
        if number == KILL:
            self.job.end()
        elif number in ASKING and not _kernel.GenerateConsoleCtrlEvent(
            signal.CTRL_BREAK_EVENT, self.pid
        ):
            say("there is no console to send Ctrl-Break by: the command is ended at once")
            self.job.end()

    def resume(self) -> None:
        """Nothing: see `poll`."""

    def handle_stop(self, number: int) -> None:
        """Nothing: see `poll`."""

    def reap(self) -> int:
        """Return the exit code of the ended command. What it has left behind may live on."""
        code = _winapi.GetExitCodeProcess(self.process)
        self.job.release()
        return code


def reap_orphans(command: int | None = None) -> None:
    """Do nothing: an ended process needs no parent that reaps it."""
