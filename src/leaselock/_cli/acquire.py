"""acquire: take a lease that outlives this command, and print its token."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, cast

from leaselock._cli.answer import answer
from leaselock._cli.child import check_nesting
from leaselock._cli.exit_codes import Usage
from leaselock._cli.interactive import InteractiveWait
from leaselock._cli.signals import Signals
from leaselock._cli.store import open_client, outage_settings

if TYPE_CHECKING:
    from leaselock import Client, Lease
    from leaselock._cli.options import AcquireOptions


def do_acquire(options: AcquireOptions) -> int:
    """Acquire a lease, print its token, and detach it."""
    if sys.stdout is None:
        raise Usage("the token would be lost: acquire prints it, and its output is closed")
    with Signals() as signals, open_client(options) as client:
        check_nesting(options.name, client.url, options.timeout)
        settings = outage_settings(options)
        lock = client.lock(
            options.name, lease=options.lease, renew=False, label=options.label, **settings
        )
        lease = cast("Lease", InteractiveWait(client, lock, options, signals).acquire())
        signals.check()
        lease.detach()
        _print_token(client, lease, options)
    return 0


def _print_token(client: Client, lease: Lease, options: AcquireOptions) -> None:
    document = {"name": lease.name, "token": lease.token, "lease": options.lease}
    try:
        if options.json:
            answer(options, document)
        else:
            print(lease.token, flush=True)
    except OSError:
        # Without its token, the lease could only be waited out.
        client.adopt(lease.name, lease.token).release()
        raise
