"""lead: run a command whenever this process is the leader."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from leaselock.cli import exit_codes
from leaselock.cli.exit_codes import Usage
from leaselock.cli.output import say
from leaselock.cli.run import on_lost_signal, parse_command, prepared, run_under_lock
from leaselock.cli.signals import Signals
from leaselock.cli.store import open_client

if TYPE_CHECKING:
    import argparse

# Seconds after the end of the command, and at most after a loss, until the next campaign.
RESTART = 1.0
JITTER = 0.5


def do_lead(options: argparse.Namespace) -> int:
    """Campaign, and run the command while this process leads; again and again, unless --once."""
    command = parse_command(options)
    on_lost = on_lost_signal(options.on_lost)
    if on_lost is None:
        raise Usage("lead ends the command when the leadership is lost: --on-lost names a signal")
    with Signals() as signals, open_client(options) as client:
        lock, spec = prepared(client, command, options)
        while True:
            outcome = run_under_lock(client, lock, spec, options, signals, on_lost)
            if options.once or signals.ending is not None:
                return outcome.code
            _rest(outcome.code, options, signals)


def _rest(code: int, options: argparse.Namespace, signals: Signals) -> None:
    lost = code == exit_codes.LOST
    if not (lost or options.quiet):
        say(f"the command ended with exit code {code}; it runs again in the next term")
    until = time.monotonic() + (JITTER * random.random() if lost else RESTART)
    while (left := until - time.monotonic()) > 0:
        signals.wait(left)
        signals.check()
