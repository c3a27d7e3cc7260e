"""Other processes of a scenario: one that is started afresh, and one that is forked.

The one runs a function of the suite on the same store; it says words, which its starter hears,
and is told words. It never closes its clients, so it ends as programs do that forget to.
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
from typing import TYPE_CHECKING, Any, NoReturn

from leaselock.core.hold import RAN_OUT
from leaselock.errors import LeaseLost

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from leaselock.testing.conformance.world import Body, World

PROGRAM = "leaselock.testing.conformance.worker"
# How a forked child ends whose lease ran out.
LOST = 2


class Child:
    """One process, until it ends or is ended."""

    def __init__(
        self, world: World, driver: str, body: Callable[..., Any], arguments: Sequence[Any]
    ) -> None:
        self.world = world
        self.words: list[str] = []
        self.errors = world.folder / f"errors {len(world.children)}"
        terms = world.store._asdict()
        del terms["fresh"]
        what = (driver, world.url, str(world.folder), json.dumps(terms))
        call = (body.__module__, body.__name__, json.dumps(arguments))
        with open(self.errors, "wb") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, *what, *call],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        self.ear = threading.Thread(target=self._listen, daemon=True)
        self.ear.start()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.words.append(line.decode().rstrip("\n"))

    async def says(self, word: str) -> None:
        """Wait until it has said *word*."""
        await self.world.until(lambda: word in self.words or not self.ear.is_alive())
        assert word in self.words, f"the process never said {word!r}: {self.trouble()}"

    def tell(self, word: str) -> None:
        """Say *word* to it, which `told` waits for."""
        told(self.world.folder, self.process.pid, word).touch()

    def kill(self) -> None:
        """End it without any clean-up."""
        self.process.kill()

    def freeze(self) -> None:
        """Stop it where it is."""
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def gone(self) -> bool:
        """Whether it has ended."""
        return self.process.poll() is not None

    async def end(self) -> None:
        """Wait until it has ended well."""
        await self.world.until(self.gone)
        assert self.process.returncode == 0, self.trouble()

    def trouble(self) -> str:
        """What it complained of."""
        return self.errors.read_text(errors="replace") or "without complaint"

    def close(self) -> None:
        """Make sure that it is gone."""
        self.process.kill()
        self.process.wait()
        self.ear.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Fork:
    """A forked child of this process."""

    def __init__(self, world: World, body: Body[None]) -> None:
        self.world = world
        self.status: int | None = None
        with warnings.catch_warnings():
            # That a process with threads is forked is the point.
            warnings.simplefilter("ignore", DeprecationWarning)
            self.pid = os.fork()
        if not self.pid:
            _be_the_child(world, body)

    def gone(self) -> bool:
        """Whether it has ended."""
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.status = os.waitstatus_to_exitcode(status) if pid else None
        return self.status is not None

    async def end(self) -> None:
        """Wait until it has ended well."""
        await self.world.until(self.gone)
        if self.status == LOST:
            raise LeaseLost("a lock of the forked child", 0, RAN_OUT)
        assert self.status == 0, "the forked child failed"

    def close(self) -> None:
        """Make sure that it is gone."""
        if not self.gone():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)


def _be_the_child(world: World, body: Body[None]) -> NoReturn:
    code = 1
    try:
        world.run(body())
        # As a program ends: whatever the parent has registered is run here, too.
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


def told(folder: Path, process: int, word: str) -> Path:
    """The file that tells *word* to a process."""
    return folder / f"{process} {word}"


def say(word: object) -> None:
    """In the child: say *word* to the starter."""
    print(word, flush=True)


async def hear(world: World, word: str) -> None:
    """In the child: wait to be told *word*."""
    await world.until(told(world.folder, os.getpid(), word).exists)
