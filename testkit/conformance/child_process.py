"""Processes of a scenario: started separately, or forked.

A new process runs a function of the suite on the same store. It sends words to its parent on
stdout, and receives words as files. It does not close its clients, like a program that forgets to.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
import warnings
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeVar

from leaselock._core.client.hold import RAN_OUT
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence
    from pathlib import Path

    from testkit.conformance.store import Store

T = TypeVar("T")

PROGRAM = "testkit.conformance.worker"
# The exit code of a forked child whose lease expired.
LOST = 2


class Environment(Protocol):
    """What a process needs of the harness of its scenario."""

    store: Store
    url: str
    folder: Path
    children: list[Child | Fork]

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine of a scenario from outside."""
        ...

    async def wait_until(self, condition: Callable[[], bool | Awaitable[bool]]) -> None:
        """Wait until *condition* is true."""
        ...


class Child:
    """A process that runs a function of the suite."""

    abandoned = False
    """It belongs to a try that has failed."""
    killed = False
    """It was killed by the test. Windows has no exit code that says so."""

    def __init__(
        self, harness: Environment, driver: str, body: Callable[..., Any], arguments: Sequence[Any]
    ) -> None:
        self.harness = harness
        self.words: list[str] = []
        self.errors = harness.folder / f"errors {len(harness.children)}"
        store = harness.store._asdict()
        del store["fresh"]
        place = (driver, harness.url, str(harness.folder), json.dumps(store))
        call = (body.__module__, body.__name__, json.dumps(arguments))
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, *place, *call],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.words.append(line.decode().rstrip("\r\n"))

    async def wait_for_word(self, word: str) -> None:
        """Wait until the process has sent *word*."""
        await self.harness.wait_until(lambda: word in self.words or not self.reader.is_alive())
        assert word in self.words, f"the process never sent {word!r}: {self.error_text()}"

    def send(self, word: str) -> None:
        """Send *word* to the process, which receives it by `wait_for_word`."""
        word_file(self.harness.folder, self.process.pid, word).touch()

    def kill(self) -> None:
        """Kill the process."""
        self.killed = True
        self.process.kill()

    def freeze(self) -> None:
        """Stop the process."""
        if sys.platform == "win32":
            _on_windows("NtSuspendProcess", self.process)
        else:
            self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the stopped process."""
        if sys.platform == "win32":
            _on_windows("NtResumeProcess", self.process)
        else:
            self.process.send_signal(signal.SIGCONT)

    def ended(self) -> bool:
        """Return whether the process has ended."""
        return self.process.poll() is not None

    def check(self) -> None:
        """Raise an error if the process has failed; it may have been killed."""
        if not (self.abandoned or self.killed) and self.ended():
            assert self.process.returncode <= 0, self.error_text()

    async def end(self) -> None:
        """Wait until the process has ended with exit code 0."""
        await self.harness.wait_until(self.ended)
        assert self.process.returncode == 0, self.error_text()

    def error_text(self) -> str:
        """Return what the process wrote to stderr."""
        return self.errors.read_text(errors="replace") or "nothing on stderr"

    def close(self) -> None:
        """Kill the process if it still runs."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


if sys.platform == "win32":

    def _on_windows(function: str, process: subprocess.Popen[bytes]) -> None:
        """Suspend or resume a process: there are no signals for that."""
        import ctypes

        call = getattr(ctypes.WinDLL("ntdll"), function)
        call.argtypes = (ctypes.c_void_p,)
        assert call(int(process._handle)) == 0  # type: ignore[attr-defined]


class Fork:
    """A forked child of this process."""

    abandoned = False
    """It belongs to a try that has failed."""

    def __init__(self, harness: Environment, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.harness = harness
        self.status: int | None = None
        with warnings.catch_warnings():
            # Forking a process with threads is what is tested.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            _run_child(harness, body)

    def ended(self) -> bool:
        """Return whether the process has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    def check(self) -> None:
        """Raise an error if the process has failed."""
        if not self.abandoned and self.ended():
            if self.status == LOST:
                raise LeaseLost("a lock of the forked child", 0, RAN_OUT)
            assert self.status == 0, "the forked child failed"

    async def end(self) -> None:
        """Wait until the process has ended with exit code 0."""
        await self.harness.wait_until(self.ended)
        self.check()

    def close(self) -> None:
        """Kill the process if it still runs."""
        if not self.ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _run_child(harness: Environment, body: Callable[[], Coroutine[Any, Any, None]]) -> NoReturn:
    code = 1
    harness.children = []  # those of the parent
    try:
        harness.run(body())
        # As at the end of a program: exit functions of the parent run here, too.
        atexit._run_exitfuncs()
        code = 0
    except LeaseLost as error:
        traceback.print_exc()
        code = LOST if error.reason == RAN_OUT else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def word_file(folder: Path, process: int, word: str) -> Path:
    """Return the file whose existence sends *word* to a process."""
    return folder / f"{process} {word}"


def send_to_parent(word: object) -> None:
    """In the child: send *word* to the parent."""
    print(word, flush=True)


async def wait_for_word(harness: Environment, word: str) -> None:
    """In the child: wait until the parent has sent *word*."""
    await harness.wait_until(word_file(harness.folder, os.getpid(), word).exists)
