"""lead: run a command whenever this process is the leader."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.child import reap_orphans
from leaselock._cli.exit_codes import Usage
from leaselock._cli.interactive import InteractiveWait
from leaselock._cli.output import say
from leaselock._cli.run import on_lost_signal, parse_command, prepared, run_under_lease
from leaselock._cli.several import blocking
from leaselock._cli.signals import Signals
from leaselock._cli.store import open_client

if TYPE_CHECKING:
    from leaselock._cli.options import LeadOptions

# Seconds after the end of the command, and at most after a loss, until the next campaign.
RESTART = 1.0
JITTER = 0.5


def do_lead(options: LeadOptions) -> int:
    """Campaign, and run the command while this process leads; again and again, unless --once."""
    command = parse_command(options)
    on_lost = on_lost_signal(options.on_lost)
    if on_lost is None:
        raise Usage("lead ends the command when the leadership is lost: --on-lost names a signal")
    with Signals() as signals, open_client(options) as client:
        lock, spec = prepared(client, command, options)
        blocking(lock).holder()  # a store that cannot be used at all is an error
        while True:
            wait = InteractiveWait(client, lock, options, signals)
            outcome = run_under_lease(client, wait, wait.acquire(), spec, options, on_lost)
            if options.once or signals.ending is not None:
                return outcome.status
            code = outcome.code
            lost = code == exit_codes.LOST
            if not (lost or options.quiet):
                say(f"the command ended with exit code {code}; it runs again in the next term")
            _rest(JITTER * random.random() if lost else RESTART, signals)


def _rest(seconds: float, signals: Signals) -> None:
    until = time.monotonic() + seconds
    while (remaining := until - time.monotonic()) > 0:
        signals.wait(remaining)
        reap_orphans()
        signals.check()
