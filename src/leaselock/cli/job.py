"""A command under a lock, ended before anybody else can have the lock.

The command gets its signal so early that it is gone, at the latest by SIGKILL, when the lease
ends. So it gets it while the lease is still good: as soon as what is left of it, with no renewal
confirmed, is the time that ending the command may take. Nothing here looks again and again: the
end of the command, signals and word of loss arrive in one pipe, and the rest is arithmetic.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from leaselock.cli import codes
from leaselock.cli.signals import PASSED_ON, Signals
from leaselock.cli.voice import say
from leaselock.cli.words import length

if TYPE_CHECKING:
    import argparse

    from leaselock import Lease
    from leaselock.cli.child import Child, Plan

FOREVER = float("inf")
NOTED = (signal.SIGWINCH, signal.SIGCHLD, signal.SIGCONT, signal.SIGTSTP)
STOPPING = (signal.SIGTTIN, signal.SIGTTOU)
# From SIGKILL to the end of a command: kept free at the end of the lease.
LAST_MOMENT = 0.5
# A lease that is lost without warning leaves the command this long at most.
WHEN_LOST = 1.0


class Job:
    """A command, watched until it ends."""

    child: Child

    def __init__(
        self,
        lease: Lease,
        options: argparse.Namespace,
        signals: Signals,
        on_lost: signal.Signals | None,
    ) -> None:
        self.lease = lease
        self.options = options
        self.signals = signals
        self.on_lost = on_lost
        self.reserve = min(LAST_MOMENT, options.ttl / 20)
        self.grace = min(options.kill_after, options.ttl / 3)
        self.lost = False
        self.end_at = FOREVER
        self.kill_at = FOREVER

    def run(self, plan: Plan) -> int:
        """Start the command, see it through, and say how it ended."""
        self.lease.on_lost(lambda _: self.signals.wake())
        self.signals.note(NOTED)
        self._start(plan)
        if self.options.max_hold is not None:
            self.end_at = time.monotonic() + self.options.max_hold
        self._watch()
        lost = self.lost or self.lease.lost
        if lost and self.on_lost is not None:
            self.child.send(signal.SIGKILL)  # whatever it has left behind
        code = self.child.reap()
        return codes.LOST if lost else code

    def _start(self, plan: Plan) -> None:
        noted = set(self.signals.before)
        plan.reset = sorted(noted)
        plan.mask = signal.pthread_sigmask(signal.SIG_BLOCK, noted)
        try:
            # The last moment: what comes from now on is noted, and passed on to the command.
            self.signals.check()
            self.child = plan.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, plan.mask)

    def _watch(self) -> None:
        while True:
            ended, stopped = self.child.news()
            if ended:
                return
            if stopped:
                self._stopped(stopped)
            self._judge(time.monotonic())
            for number in self.signals.wait(self._patience(time.monotonic())):
                self._pass_on(number)

    def _stopped(self, number: int) -> None:
        if number not in STOPPING and not self.options.quiet:
            left = length(self.lease.remaining)
            say(f"the command is stopped; continue it within {left} or it will be ended")
        self.child.stopped(number)

    def _pass_on(self, number: int) -> None:
        if number == signal.SIGCONT:
            self.child.go_on()
        elif number in PASSED_ON or number == signal.SIGTSTP:
            self.child.send(number)

    def _judge(self, now: float) -> None:
        """End the command when the lease or its time is nearly over."""
        if not self.lost and self.lease.remaining <= self._least():
            self.lost = True
            self._lose(now)
        if now >= self.end_at:
            self.end_at = FOREVER
            say(f"{self.lease.name!r} was held for {length(self.options.max_hold)}: ending")
            self._end(signal.SIGTERM, now + self.options.kill_after)
        if now >= self.kill_at:
            self.kill_at = FOREVER
            self.child.send(signal.SIGKILL)

    def _least(self) -> float:
        """What must be left of the lease for the command to go on."""
        return 0.0 if self.on_lost is None else self.grace + self.reserve

    def _lose(self, now: float) -> None:
        if self.on_lost is None:
            say(f"{self._loss()}; the command goes on")
            return
        say(f"{self._loss()}; ending the command")
        left = self.lease.remaining - self.reserve
        self._end(self.on_lost, now + (left if left > 0 else min(self.grace, WHEN_LOST)))

    def _loss(self) -> str:
        if self.lease.lost:
            return f"the lease on {self.lease.name!r} is lost"
        if self.options.no_renew:
            return f"the fixed lease on {self.lease.name!r} is nearly over"
        return f"the lease on {self.lease.name!r} could not be renewed and is nearly over"

    def _end(self, number: int, kill_at: float) -> None:
        self.kill_at = min(self.kill_at, kill_at)
        self.child.send(number)
        self.child.send(signal.SIGCONT)  # a stopped command would not hear it

    def _patience(self, now: float) -> float:
        """How long nothing can happen that no signal tells of."""
        lease = FOREVER if self.lost else self.lease.remaining - self._least()
        return min(self.end_at - now, self.kill_at - now, lease)
