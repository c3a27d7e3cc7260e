"""One process in which a party lives, and does what the director says, one thing at a time.

Law: everything is done in one thread, so that the party is one holder. What it raises is what the
program was told, and is passed on by its name. A clock that is to be wrong is set wrong before the
party is made.
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

    from leaselock.testing.hazards.party import Grip, Party
    from leaselock.testing.hazards.ways import Way

CHILDHOOD = 3
CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
# What a program does to a store without a network: the functions of C that do it.
STEPS = frozenset(("execute", "executemany", "commit", "open", "unlink", "flock", "lockf", "link"))


class Answer(NamedTuple):
    """What came of one order."""

    held: bool
    """The lock was taken by it."""
    said: str
    """What the program was told: the name of an error, or nothing."""
    why: str = ""
    token: int | None = None
    ended: float = 0.0
    """When, on the boot clock; of a turn, when the lock was granted."""
    until: float = 0.0
    """Until when it believes that it holds."""
    steps: int = 0
    """How often a local store was touched so far."""


class Steps:
    """Counts the touches of a local store, and at one of them stops or ends its process."""

    def __init__(self) -> None:
        self.count = 0
        self.left = 0
        self.signal = signal.SIGSTOP

    def watch(self) -> None:
        """Begin to look, in this thread and all that are started from now on."""
        threading.setprofile(self.seen)
        sys.setprofile(self.seen)

    def seen(self, frame: FrameType, event: str, called: Any) -> None:
        """What the interpreter calls."""
        if event != "c_call" or called.__name__ not in STEPS:
            return
        self.count += 1
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), self.signal)


class Actor:
    """The process's side of the pipe."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe
        self.steps = Steps()
        self.party: Party | None = None
        self.crowd: list[Waiter] = []
        self.granted = 0.0

    def run(self) -> None:
        """Carry out orders until there are no more."""
        while True:
            try:
                order, *words = self.pipe.recv()
            except EOFError:
                return
            self.pipe.send(self.answer(getattr(self, f"on_{order}"), *words))

    def answer(self, order: Callable[..., Grip | None], *words: Any) -> Answer:
        """Carry out one."""
        grip, said, why, self.granted = None, "", "", 0.0
        try:
            grip = order(*words)
        except Exception as error:
            # What a program is told is an outcome here, whatever it is.
            said, why = type(error).__name__, str(error)
        ended = self.granted or time.clock_gettime(CLOCK)
        until = self.party.until() if self.party else 0.0
        token = grip.token if grip else None
        return Answer(grip is not None, said, why, token, ended, until, self.steps.count)

    def on_become(self, way: Way, url: str, skew: float, steps: bool) -> None:
        """Be a party of that way."""
        if skew:
            set_clock(skew)
        if steps:
            self.steps.watch()
        self.way, self.url = way, url
        self.party = way.party(url)

    def on_take(self, name: str, lease: float, renew: bool, patience: float) -> Grip | None:
        """Take the lock."""
        assert self.party is not None
        return self.party.take(name, lease, renew=renew, patience=patience)

    def on_release(self, name: str) -> None:
        """Release it."""
        assert self.party is not None
        self.party.release(name)

    def on_fork(self, name: str) -> None:
        """Let a forked child do what the program does at its end."""
        child = os.fork()
        if not child:
            # A driver that was not made for this may wait for a thread that is not there.
            signal.alarm(CHILDHOOD)
            try:
                self.on_release(name)
            finally:
                os._exit(0)
        os.waitpid(child, 0)

    def on_look(self) -> None:
        """Say what it believes."""

    def on_turn(self, name: str, lease: float, patience: float) -> Grip | None:
        """Take the lock and give it back at once; the grip says that it had it."""
        grip = self.on_take(name, lease, True, patience)
        self.granted = time.clock_gettime(CLOCK)
        if grip is not None:
            self.on_release(name)
        return grip

    def on_swarm(self, count: int, name: str, lease: float, patience: float) -> None:
        """Let so many parties wait for the lock, each of which gives it back when it has it."""
        self.crowd = [Waiter(self.way.patient(self.url)) for _ in range(count)]
        for waiter in self.crowd:
            waiter.start(name, lease, patience)

    def on_join(self) -> None:
        """Wait until all of them are done; RuntimeError when one was never granted it."""
        served = [waiter.join() for waiter in self.crowd]
        told = ", ".join({waiter.told for waiter in self.crowd if waiter.told})
        self.crowd = []
        if not all(served):
            raise RuntimeError(f"{served.count(False)} of {len(served)} not granted it: {told}")

    def on_strike(self, after: int, number: int) -> None:
        """Stop, or end, at the k-th touch of the store from now; never at the 0th."""
        self.steps.signal = signal.Signals(number)
        self.steps.left = after

    def on_leave(self) -> None:
        """Be no party any more."""
        self.steps.left = 0
        if self.party is not None:
            party, self.party = self.party, None
            party.close()


class Waiter:
    """One of a crowd: waits, and gives the lock back when it has it."""

    def __init__(self, party: Party) -> None:
        self.party = party
        self.granted = False
        self.told = ""
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.words: tuple[str, float, float] = ("", 0.0, 0.0)

    def start(self, name: str, lease: float, patience: float) -> None:
        """Begin to wait."""
        self.words = (name, lease, patience)
        self.thread.start()

    def _run(self) -> None:
        name, lease, patience = self.words
        try:
            self.granted = self.party.take(name, lease, renew=True, patience=patience) is not None
            self.party.release(name)
        except Exception as error:
            # Whatever it is told instead of a grant, it was not granted.
            self.told = f"{type(error).__name__}: {error}"

    def join(self) -> bool:
        """Wait for its end; whether it was granted the lock."""
        self.thread.join()
        self.party.close()
        return self.granted


def set_clock(skew: float) -> None:
    """Have this process's wall clock run ahead by *skew* seconds."""
    from leaselock.drivers.system_env import SystemEnv

    true_time, true_time_ns = time.time, time.time_ns
    clock = time.__dict__
    clock["time"] = lambda: true_time() + skew
    clock["time_ns"] = lambda: true_time_ns() + int(skew * 1e9)
    # It has the function itself, whose name would be asked for too often.
    SystemEnv.wall = staticmethod(time.time)


def live(pipe: Connection) -> None:
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Actor(pipe).run()
    os._exit(0)
