"""check: whether a token holds a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import done
from leaselock._cli.exit_codes import Negative
from leaselock._cli.store import open_client
from leaselock._cli.tokens import state_of, token_of
from leaselock.documents import holder_document

if TYPE_CHECKING:
    from leaselock._cli.options import TokenOptions


def do_check(options: TokenOptions) -> int:
    """Exit 0 if the token holds the lock, detached or not."""
    name, token = options.name, token_of(options)
    with open_client(options) as client:
        holders = client.lock(name).holders()
    matching = [holder for holder in holders if holder.token == token]
    holder = next(iter(matching or holders), None)
    document = {"name": name, "token": token, "holder": holder_document(holder)}
    if holder is None or holder.token != token:
        text = f"{name!r} is {state_of(holder)}"
        kind = exit_codes.KINDS[exit_codes.NOT_HELD]
        raise Negative(text, exit_codes.NOT_HELD, kind, document)
    return done(options, document, f"{name!r} is {state_of(holder)}")
