"""release: release a lease that `acquire` took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.answer import done
from leaselock._cli.store import open_client
from leaselock._cli.tokens import token_of

if TYPE_CHECKING:
    from leaselock._cli.options import TokenOptions


def do_release(options: TokenOptions) -> int:
    """Release a lease."""
    name, token = options.name, token_of(options)
    with open_client(options) as client:
        client.adopt(name, token).release()
    return done(options, {"name": name, "token": token}, f"released {name!r}, token {token}")
