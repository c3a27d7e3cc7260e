"""The worker processes of a run, as the trials see them.

Processes are forked from a clean one that has imported the drivers, so that a new one is cheap. A
process that was killed, or whose clock is wrong, is never reused; others run further programs. No
process outlives the pool.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

from testkit.polling import poll_until
from verification.hazards.worker import Result, run_worker

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from verification.hazards.methods import Method

TIMEOUT = 30.0
PRELOADED = ["verification.hazards.worker", "ssl", "sqlite3", "asyncio", "redis", "hiredis"]
PRELOADED += ["kazoo.client", "psycopg", "pymysql"]


class NoReply(RuntimeError):
    """A worker did not reply in time."""


class WorkerProcess:
    """One worker process, seen from the trial."""

    def __init__(self, pool: ProcessPool) -> None:
        self.pool = pool
        self.pipe: Connection
        self.pipe, theirs = pool.context.Pipe()
        self.process = pool.context.Process(target=run_worker, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.reusable = True
        self.pending = 0

    @property
    def pid(self) -> int:
        """The process id."""
        assert self.process.pid is not None
        return self.process.pid

    # --- commands ---------------------------------------------------------------------------------

    def begin(self, command: str, *arguments: Any) -> None:
        """Send a command; `result` returns its result."""
        self.pending += 1
        self.pipe.send((command, *arguments))

    def ready(self) -> bool:
        """Return whether a result has arrived."""
        return self.pipe.poll(0)

    def result(self, timeout: float = TIMEOUT) -> Result:
        """Wait for the result of the last command."""
        if not self.pipe.poll(timeout):
            self.reusable = False
            raise NoReply(f"no reply in {timeout:g} s")
        result: Result = self.pipe.recv()
        self.pending -= 1
        return result

    def run(self, command: str, *arguments: Any) -> Result:
        """Send a command, and wait for its result."""
        self.begin(command, *arguments)
        return self.result()

    def start_program(
        self, method: Method, url: str, skew: float = 0.0, count_calls: bool = False
    ) -> None:
        """Create a program of that method in the worker; RuntimeError if that fails."""
        self.reusable = self.reusable and not skew and not count_calls
        result = self.run("start", method, url, skew, count_calls)
        if result.error:
            raise RuntimeError(f"{method.name}: {result.error}: {result.message}")

    # --- process control --------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        os.kill(self.pid, number)

    def state(self) -> str:
        """Return the state letter in /proc; empty if the process is gone."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
                return stat.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.reusable = False
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.join(TIMEOUT)

    def freeze(self) -> None:
        """Stop the process, and wait until it has stopped."""
        self.signal(signal.SIGSTOP)
        poll_until(lambda: self.state() == "T", TIMEOUT)

    def resume(self) -> None:
        """Continue the stopped process."""
        self.signal(signal.SIGCONT)

    def give_back(self) -> None:
        """Close the program; return the process to the pool, or end it if it is not reusable."""
        if not self.reusable or self.pending or self.state() == "T":
            self.end()
            return
        try:
            self.run("close")
            self.pool.idle.append(self)
        except (NoReply, OSError, EOFError):
            self.end()

    def end(self) -> None:
        """End the process."""
        if self.process.is_alive():
            self.kill()
        self.pipe.close()
        self.process.close()


class ProcessPool:
    """All worker processes of a run."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(PRELOADED)
        self.idle: list[WorkerProcess] = []
        self.mutex = threading.Lock()

    def take(self, *, fresh: bool = False) -> WorkerProcess:
        """Return a process without a program."""
        with self.mutex:
            if self.idle and not fresh:
                return self.idle.pop()
            return WorkerProcess(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self.idle:
            self.idle.pop().end()
