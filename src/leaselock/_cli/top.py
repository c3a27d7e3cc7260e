"""top: the live state of a store on a terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from leaselock._cli.exit_codes import Interrupted, Misconfigured, Usage
from leaselock._cli.output import escapes_allowed, is_terminal
from leaselock._cli.store import open_as

if TYPE_CHECKING:
    from leaselock._cli.options import TopOptions

SHORTEST_INTERVAL = 0.1


def do_top(options: TopOptions) -> int:
    """Show the locks until the user quits."""
    if options.json:
        raise Usage("top answers people only: leaselock ls --watch --json lists for programs")
    if options.interval < SHORTEST_INTERVAL:
        raise Usage("--interval is at least 100ms")
    if not (is_terminal(sys.stdin) and is_terminal(sys.stdout)):
        raise Usage("top needs a terminal: leaselock ls --watch does not")
    if not escapes_allowed(options, sys.stdout):
        os.environ["NO_COLOR"] = "1"  # read by textual
    try:
        import textual  # noqa: F401
    except ImportError as error:
        from leaselock._extras import install_command

        command = install_command("top", "textual")
        raise Misconfigured(
            f"top needs textual: {command}. Without it: leaselock ls --watch"
        ) from error
    import asyncio

    signal = asyncio.run(_show(options))
    if signal is not None:
        raise Interrupted(signal)
    return 0


async def _show(options: TopOptions) -> int | None:
    """Show the locks; return the signal that ended it, if one did."""
    import asyncio

    from leaselock import AsyncClient
    from leaselock._cli.top_ending import Ending
    from leaselock._cli.top_screen import Top
    from leaselock.live import Monitor

    async with open_as(AsyncClient, options) as client:
        monitor = Monitor(client, interval=options.interval, pattern=options.pattern)
        app = Top(monitor, sort=options.sort)
        with Ending(asyncio.get_running_loop(), app.exit):
            try:
                signal = await app.run_async()
                if app.return_code:
                    raise RuntimeError("the screen failed")  # textual has shown why
                return signal
            finally:
                await monitor.close()
