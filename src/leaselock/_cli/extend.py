"""extend: have a lease end later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.answer import done
from leaselock._cli.formatting import format_duration
from leaselock._cli.output import say
from leaselock._cli.store import open_client
from leaselock._cli.tokens import token_of

if TYPE_CHECKING:
    from leaselock._cli.options import ExtendOptions


def do_extend(options: ExtendOptions) -> int:
    """Extend a lease to at least --lease from now."""
    name, token = options.name, token_of(options)
    with open_client(options) as client:
        lease = client.adopt(name, token)
        before = lease.remaining
        lease.extend(options.lease)
        remaining = lease.remaining
    duration = format_duration(remaining)
    longer = before > options.lease
    if longer and not options.quiet and not options.json:
        say(f"the lease on {name!r} has {duration} left already, which is longer: it stays so")
    document = {"name": name, "token": token, "remaining": remaining, "extended": not longer}
    return done(options, document, f"the lease on {name!r} ends in {duration}")
