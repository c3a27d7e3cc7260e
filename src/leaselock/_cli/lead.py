"""lead: run a command whenever this process is the leader."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING

from leaselock import StoreError
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
    from leaselock import Client, Lease, Lock
    from leaselock._cli.options import LeadOptions
    from leaselock._cli.several import SeveralLeases, SeveralLocks

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
            wait, lease = _campaign(client, lock, options, signals)
            outcome = run_under_lease(client, wait, lease, spec, options, on_lost)
            if options.once or signals.ending is not None:
                return outcome.code
            code = outcome.code
            lost = code == exit_codes.LOST
            if not (lost or options.quiet):
                say(f"the command ended with exit code {code}; it runs again in the next term")
            _rest(JITTER * random.random() if lost else RESTART, signals)


def _campaign(
    client: Client, lock: Lock | SeveralLocks, options: LeadOptions, signals: Signals
) -> tuple[InteractiveWait, Lease | SeveralLeases]:
    """Wait until this process leads. A store that fails is asked again until it answers: its
    restart, or a failover during which it only reads, must not end every candidate.
    """
    reported = False
    while True:
        wait = InteractiveWait(client, lock, options, signals)
        try:
            return wait, wait.acquire()
        except StoreError as error:
            if not reported:
                say(f"cannot campaign for {lock.name!r}, and tries again: {error}")
            reported = True
        _rest(RESTART + JITTER * random.random(), signals)


def _rest(seconds: float, signals: Signals) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        signals.wait(left)
        reap_orphans()
        signals.check()
