"""gc: remove records that are no longer needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.cli.answer import answer
from leaselock.cli.output import progress, say
from leaselock.cli.store import open_client

if TYPE_CHECKING:
    from leaselock.cli.options import Options


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
