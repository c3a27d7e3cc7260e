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
    kept: list[str] = []
    with (
        open_client(options) as client,
        progress(options, f"removing records from {client.url}") as shown,
    ):
        count = client.gc(lambda removed: shown.detail(f"{removed} removed"), kept=kept.append)
    if options.json:
        answer(options, {"removed": count})
    elif not options.quiet:
        say(f"{count} records removed")
        for text in kept:
            say(f"kept: {text}")
    return 0
