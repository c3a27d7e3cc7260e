"""Runs a command under a lease, and ends it before another client can acquire the lock.

The command must be gone when the lease ends, at the latest by SIGKILL. Therefore it gets its
signal while the lease is still valid: as soon as the rest of the lease, with no renewal
confirmed, is the time that ending the command may take. Nothing is polled: the command's end,
signals and the loss of the lease arrive in one pipe, and everything else is a deadline.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.child import reap_orphans
from leaselock._cli.formatting import format_duration
from leaselock._cli.output import say
from leaselock._cli.several import failing
from leaselock._cli.signals import (
    CONTINUE,
    FORWARDED,
    KILL,
    STOP_BY_TERMINAL,
    Signals,
    existing,
)
from leaselock._named_tuple import NamedTuple

if TYPE_CHECKING:
    from leaselock import Lease
    from leaselock._cli.child import Child, CommandSpec
    from leaselock._cli.options import CommandOptions
    from leaselock._cli.several import SeveralLeases

NEVER = float("inf")
RECORDED = existing("SIGWINCH", "SIGCONT", "SIGTSTP")
TERMINAL_STOPS = existing("SIGTTIN", "SIGTTOU")
# Kept free at the end of the lease: from SIGKILL to the end of the command.
KILL_RESERVE = 0.5
# The most time a command gets after the signal when the lease is lost without warning.
GRACE_WHEN_LOST = 1.0


class Outcome(NamedTuple):
    """How a command ended."""

    status: int
    """The exit code, or -N when signal N ended the command."""
    failure: str = ""
    """Why it was ended, if it was."""

    @property
    def code(self) -> int:
        """The exit code as a shell reports it."""
        return exit_codes.for_shell(self.status)


class Supervisor:
    """Watches a command until it ends."""

    child: Child

    def __init__(
        self,
        lease: Lease | SeveralLeases,
        options: CommandOptions,
        signals: Signals,
        on_lost: int | None,
    ) -> None:
        self.lease = lease
        self.options = options
        self.signals = signals
        self.on_lost = on_lost
        # The longest that the lease was seen to be valid. Where a hold ends with a session, that is
        # a half of the session timeout, whatever the lease.
        self.longest = 0.0
        # The lease was lost, or nearly, and that was said; --max-hold is over.
        self.lost = self.expired = False
        self.end_at = NEVER
        self.kill_at = NEVER

    def run(self, command: CommandSpec) -> Outcome:
        """Start the command, watch it until it ends, and say how it ended."""
        self.lease.on_lost(lambda _: self.signals.wake())
        self.signals.record(RECORDED)
        self.child = command.start(self.signals)
        if self.options.max_hold is not None:
            self.end_at = time.monotonic() + self.options.max_hold
        try:
            self._watch()
        except BaseException:
            # It must not run on when the lock is released.
            self.child.send(KILL)
            self.child.reap()
            raise
        lost = self.lost or self.lease.lost
        if lost and self.on_lost is not None:
            self.child.send(KILL)  # processes that the command has left behind
        status = self.child.reap()
        if lost:
            return Outcome(exit_codes.LOST, self._loss_message())
        if self.expired:
            return Outcome(exit_codes.MAX_HOLD, self._expiry_message())
        return Outcome(status)

    def _watch(self) -> None:
        while True:
            ended, stopped = self.child.poll()
            if ended:
                return
            if stopped:
                self._handle_stop(stopped)
            reap_orphans(self.child.pid)
            self._check_deadlines(time.monotonic())
            for number in self.signals.wait(self._next_deadline(time.monotonic())):
                self._forward(number)

    def _handle_stop(self, number: int) -> None:
        if number not in TERMINAL_STOPS and not self.options.quiet:
            remaining = format_duration(self.lease.remaining)
            say(f"the command is stopped; continue it within {remaining} or it will be ended")
        self.child.handle_stop(number)

    def _forward(self, number: int) -> None:
        if number == CONTINUE:
            self.child.resume()
        elif number in FORWARDED or number == STOP_BY_TERMINAL:
            self.child.send(number)

    def _check_deadlines(self, now: float) -> None:
        """End the command when the lease or --max-hold is nearly over."""
        if not self.lost and self.lease.remaining <= self._required_time():
            self.lost = True
            self._handle_loss(now)
        if now >= self.end_at:
            self.end_at, self.expired = NEVER, True
            say(f"{self._expiry_message()}; ending the command")
            self._end(signal.SIGTERM, now + self.options.kill_after)
        if now >= self.kill_at:
            self.kill_at = NEVER
            self.child.send(KILL)

    @property
    def reserve(self) -> float:
        """Seconds to keep free at the end of the lease."""
        return min(KILL_RESERVE, self.longest / 20)

    @property
    def grace(self) -> float:
        """Seconds from the signal for a loss to SIGKILL."""
        kill_after: float = self.options.kill_after
        return min(kill_after, self.longest / 3)

    def _required_time(self) -> float:
        """Return how much of the lease must be left for the command to go on."""
        self.longest = max(self.longest, min(self.lease.remaining, self.options.lease))
        return 0.0 if self.on_lost is None else self.grace + self.reserve

    def _handle_loss(self, now: float) -> None:
        if self.on_lost is None:
            say(f"{self._loss_message()}; the command goes on")
            return
        say(f"{self._loss_message()}; ending the command")
        remaining = self.lease.remaining - self.reserve
        self._end(
            self.on_lost, now + (remaining if remaining > 0 else min(self.grace, GRACE_WHEN_LOST))
        )

    def _expiry_message(self) -> str:
        return f"{self.lease.name!r} was held for {format_duration(self.options.max_hold or 0.0)}"

    def _loss_message(self) -> str:
        name = failing(self.lease).name
        if self.lease.lost:
            return f"the lease on {name!r} in {self.options.store} is lost"
        if self.options.no_renew:
            return f"the fixed lease on {name!r} is nearly over"
        return f"the lease on {name!r} could not be renewed and is nearly over"

    def _end(self, number: int, kill_at: float) -> None:
        self.kill_at = min(self.kill_at, kill_at)
        self.child.send(number)
        self.child.send(CONTINUE)  # a stopped command would not receive the signal

    def _next_deadline(self, now: float) -> float:
        """Return the seconds until the next deadline."""
        lease = NEVER if self.lost else self.lease.remaining - self._required_time()
        return min(self.end_at - now, self.kill_at - now, lease)
