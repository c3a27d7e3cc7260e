"""gc: remove records that are no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.answer import answer
from leaselock._cli.output import progress, say
from leaselock._cli.store import open_client

if TYPE_CHECKING:
    from leaselock._cli.options import Options


def do_gc(options: Options) -> int:
    """Remove records that are no longer needed."""
    with (
        open_client(options) as client,
        progress(options, f"removing records from {client.url}"),
    ):
        count = client.gc()
    if options.json:
        answer(options, {"removed": count})
    elif not options.quiet:
        say(f"{count} records removed")
    return 0
