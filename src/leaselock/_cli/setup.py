"""setup: create what the store needs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._cli.answer import answer
from leaselock._cli.output import progress, say
from leaselock._cli.store import open_client

if TYPE_CHECKING:
    from leaselock._cli.options import SetupOptions


def do_setup(options: SetupOptions) -> int:
    """Create what the store needs, or print the statements that would."""
    with open_client(options) as client:
        url = client.url
        with progress(options, f"setting up {url}"):
            done = client.setup(dry_run=options.dry)
    if options.json:
        answer(options, {"statements": done, "dry": options.dry})
    elif options.dry:
        print("".join(f"{statement};\n" for statement in done), end="")
    elif not options.quiet:
        say(f"{url} is ready" if done else f"{url} needs no setup")
    return 0
