"""leader: who leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli import exit_codes
from leaselock._cli.answer import answer
from leaselock._cli.exit_codes import Negative
from leaselock._cli.formatting import describe
from leaselock._cli.store import open_client
from leaselock.documents import holder_document

if TYPE_CHECKING:
    from leaselock._cli.options import NameOptions


def do_leader(options: NameOptions) -> int:
    """Print who leads."""
    with open_client(options) as client:
        leader = client.election(options.name).leader()
    if leader is None:
        details = {"name": options.name, "leader": None}
        text = f"{options.name!r} has no leader"
        raise Negative(text, exit_codes.UNMET, "no leader", details)
    if options.json:
        answer(options, {"name": options.name, "leader": holder_document(leader)})
    else:
        print(describe(leader))
    return 0
