"""A worker process: it runs one lock program and executes the trial's commands one at a time.

All commands run in one thread, so the program is one owner. An exception of the program is part of
the result. A wrong clock is set before the program is created.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection
    from types import FrameType

    from verification.hazards.lock_program import Grant, LockProgram
    from verification.hazards.methods import Method

CHILD_LIMIT = 3
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# The C functions by which a program accesses a store without a network.
STORE_CALLS = frozenset(
    ("execute", "executemany", "commit", "open", "unlink", "flock", "lockf", "link")
)


class Result(NamedTuple):
    """The result of one command."""

    held: bool
    """Whether the command acquired the lock."""
    error: str
    """The name of the exception that the program raised; empty if none."""
    message: str = ""
    token: int | None = None
    ended: float = 0.0
    """When it ended, on the boot clock; for acquire_release, when the lock was granted."""
    until: float = 0.0
    """Until when the program considers its hold valid."""
    steps: int = 0
    """The number of accesses to a local store so far."""


class CallCounter:
    """Counts accesses to a local store, and signals its own process at a chosen one."""

    def __init__(self) -> None:
        self.count = 0
        self.left = 0
        self.signal = signal.SIGSTOP

    def install(self) -> None:
        """Count calls in this thread and in all threads started from now on."""
        threading.setprofile(self.on_call)
        sys.setprofile(self.on_call)

    def on_call(self, frame: FrameType, event: str, called: Any) -> None:
        """Handle a profiling event of the interpreter."""
        if event != "c_call" or called.__name__ not in STORE_CALLS:
            return
        self.count += 1
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), self.signal)


class Worker:
    """The worker's end of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.calls = CallCounter()
        self.program: LockProgram | None = None
        self.waiters: list[Waiter] = []
        self.granted = 0.0

    def run(self) -> None:
        """Execute commands until the pipe is closed."""
        while True:
            try:
                command, *arguments = self.pipe.recv()
            except EOFError:
                return
            self.pipe.send(self.execute(getattr(self, f"do_{command}"), *arguments))

    def execute(self, command: Callable[..., Grant | None], *arguments: Any) -> Result:
        """Execute one command."""
        grant, error, message, self.granted = None, "", "", 0.0
        try:
            grant = command(*arguments)
        except Exception as raised:
            # Any exception of the program under test is part of the outcome.
            error, message = type(raised).__name__, str(raised)
        ended = self.granted or time.clock_gettime(CLOCK)
        until = self.program.valid_until() if self.program else 0.0
        token = grant.token if grant else None
        return Result(grant is not None, error, message, token, ended, until, self.calls.count)

    def do_start(self, method: Method, url: str, skew: float, count_calls: bool) -> None:
        """Create a program of that method."""
        if skew:
            set_clock(skew)
        if count_calls:
            self.calls.install()
        self.method, self.url = method, url
        self.program = method.new_program(url)

    def do_acquire(self, name: str, lease: float, renew: bool, timeout: float) -> Grant | None:
        """Acquire the lock."""
        assert self.program is not None
        return self.program.acquire(name, lease, renew=renew, timeout=timeout)

    def do_release(self, name: str) -> None:
        """Release the lock."""
        assert self.program is not None
        self.program.release(name)

    def do_fork(self, name: str) -> None:
        """Fork a child that releases the lock and exits, as the program does at its end."""
        child = os.fork()
        if not child:
            # A driver without support for fork may wait for a thread that the child lacks.
            signal.alarm(CHILD_LIMIT)
            try:
                self.do_release(name)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def do_report(self) -> None:
        """Do nothing: the result has the state of the hold."""

    def do_acquire_release(self, name: str, lease: float, timeout: float) -> Grant | None:
        """Acquire the lock and release it at once; return the grant."""
        grant = self.do_acquire(name, lease, True, timeout)
        self.granted = time.clock_gettime(CLOCK)
        if grant is not None:
            self.do_release(name)
        return grant

    def do_start_waiters(self, count: int, name: str, lease: float, timeout: float) -> None:
        """Start *count* programs that wait for the lock; each releases it once granted."""
        self.waiters = [Waiter(self.method.new_waiter(self.url)) for _ in range(count)]
        for waiter in self.waiters:
            waiter.start(name, lease, timeout)

    def do_join_waiters(self) -> None:
        """Wait until all waiters have ended; RuntimeError if one was never granted the lock."""
        granted = [waiter.join() for waiter in self.waiters]
        errors = ", ".join({waiter.error for waiter in self.waiters if waiter.error})
        self.waiters = []
        if not all(granted):
            raise RuntimeError(f"{granted.count(False)} of {len(granted)} not granted it: {errors}")

    def do_signal_at_call(self, after: int, number: int) -> None:
        """Signal this process at the *after*-th access to the store from now; never if 0."""
        self.calls.signal = signal.Signals(number)
        self.calls.left = after

    def do_close(self) -> None:
        """Close the program."""
        self.calls.left = 0
        if self.program is not None:
            program, self.program = self.program, None
            program.close()


class Waiter:
    """A program in a thread that waits for the lock and releases it once granted."""

    def __init__(self, program: LockProgram) -> None:
        self.program = program
        self.granted = False
        self.error = ""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.arguments: tuple[str, float, float] = ("", 0.0, 0.0)

    def start(self, name: str, lease: float, timeout: float) -> None:
        """Begin to wait."""
        self.arguments = (name, lease, timeout)
        self.thread.start()

    def _run(self) -> None:
        name, lease, timeout = self.arguments
        try:
            grant = self.program.acquire(name, lease, renew=True, timeout=timeout)
            self.granted = grant is not None
            self.program.release(name)
        except Exception as raised:
            # Any exception of the program under test means that the lock was not granted.
            self.error = f"{type(raised).__name__}: {raised}"

    def join(self) -> bool:
        """Wait for the thread's end; return whether the lock was granted."""
        self.thread.join()
        self.program.close()
        return self.granted


def set_clock(skew: float) -> None:
    """Make this process's wall clock run ahead by *skew* seconds."""
    from leaselock._drivers.system_env import SystemEnv

    true_time, true_time_ns = time.time, time.time_ns
    clock = time.__dict__
    clock["time"] = lambda: true_time() + skew
    clock["time_ns"] = lambda: true_time_ns() + int(skew * 1e9)
    # SystemEnv keeps a reference to the function, to avoid the attribute lookup.
    SystemEnv.wall = staticmethod(time.time)


def run_worker(pipe: Connection) -> None:
    """Run a worker; the target of the process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Worker(pipe).run()
    os._exit(0)
