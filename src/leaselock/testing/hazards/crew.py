"""The processes that play, as the director sees them.

Law: processes are forked from a clean one that has loaded the drivers, so that a fresh one costs
little. One that was killed, or whose clock is wrong, is never used again; the others are, as
another party. Nothing outlives the crew.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
from typing import TYPE_CHECKING, Any, Self

from leaselock.testing.hazards.actor import Answer, live
from leaselock.testing.polling import poll_until as until

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from leaselock.testing.hazards.ways import Way

PATIENCE = 30.0
LOADED = ["leaselock.testing.hazards.actor", "ssl", "sqlite3", "asyncio", "redis", "hiredis"]
LOADED += ["kazoo.client", "psycopg", "pymysql"]


class Lost(RuntimeError):
    """A process did not answer in time."""


class Actor:
    """One process that plays a party."""

    def __init__(self, crew: Crew) -> None:
        self.crew = crew
        self.pipe: Connection
        self.pipe, theirs = crew.context.Pipe()
        self.process = crew.context.Process(target=live, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.spoilt = False
        self.owing = 0

    @property
    def pid(self) -> int:
        """Its number."""
        assert self.process.pid is not None
        return self.process.pid

    # --- orders -----------------------------------------------------------------------------------

    def begin(self, order: str, *words: Any) -> None:
        """Give an order; `result` has what came of it."""
        self.owing += 1
        self.pipe.send((order, *words))

    def ready(self) -> bool:
        """Whether the result is there."""
        return self.pipe.poll(0)

    def result(self, patience: float = PATIENCE) -> Answer:
        """What came of the last order."""
        if not self.pipe.poll(patience):
            self.spoilt = True
            raise Lost(f"no answer in {patience:g} s")
        answer: Answer = self.pipe.recv()
        self.owing -= 1
        return answer

    def ask(self, order: str, *words: Any) -> Answer:
        """Give an order, and wait for its result."""
        self.begin(order, *words)
        return self.result()

    def become(self, way: Way, url: str, skew: float = 0.0, steps: bool = False) -> None:
        """Be a party of that way; RuntimeError when that is impossible."""
        self.spoilt = self.spoilt or bool(skew) or steps
        answer = self.ask("become", way, url, skew, steps)
        if answer.said:
            raise RuntimeError(f"{way.name}: {answer.said}: {answer.why}")

    # --- what befalls it --------------------------------------------------------------------------

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self.pid, number)

    def state(self) -> str:
        """The kernel's letter for what it is doing; empty when it is gone."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="utf-8") as stat:
                return stat.read().rpartition(")")[2].split()[0]
        except OSError:
            return ""

    def kill(self) -> None:
        """End it without warning; returns when it is gone."""
        self.spoilt = True
        with contextlib.suppress(ProcessLookupError):
            self.signal(signal.SIGKILL)
        self.process.join(PATIENCE)

    def freeze(self) -> None:
        """Stop it where it is; returns when it has stopped."""
        self.signal(signal.SIGSTOP)
        until(lambda: self.state() == "T", PATIENCE)

    def thaw(self) -> None:
        """Let it go on."""
        self.signal(signal.SIGCONT)

    def dismiss(self) -> None:
        """It is needed no more, as this party."""
        if self.spoilt or self.owing or self.state() == "T":
            self.end()
            return
        try:
            self.ask("leave")
            self.crew.idle.append(self)
        except (Lost, OSError, EOFError):
            self.end()

    def end(self) -> None:
        """End it for good."""
        if self.process.is_alive():
            self.kill()
        self.pipe.close()
        self.process.close()


class Crew:
    """All processes of a run."""

    def __init__(self) -> None:
        self.context = multiprocessing.get_context("forkserver")
        self.context.set_forkserver_preload(LOADED)
        self.idle: list[Actor] = []
        self.mutex = threading.Lock()

    def hire(self, *, fresh: bool = False) -> Actor:
        """A process that plays nothing yet."""
        with self.mutex:
            if self.idle and not fresh:
                return self.idle.pop()
            return Actor(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        while self.idle:
            self.idle.pop().end()
