"""web: the live state of a store as a page."""

from __future__ import annotations

import platform
import secrets
from typing import TYPE_CHECKING

from leaselock._cli.answer import answer
from leaselock._cli.exit_codes import Misconfigured, Usage
from leaselock._cli.output import say
from leaselock._cli.store import open_as

if TYPE_CHECKING:
    import socket

    from leaselock._cli.options import WebOptions

SHORTEST_INTERVAL = 0.1
LARGEST_PORT = 65_535
# So that it cannot be found by trying.
SHORTEST_TOKEN, LONGEST_TOKEN = 16, 1_000
LOCAL = ("127.", "::1")


def do_web(options: WebOptions) -> int:
    """Serve the page until a signal comes."""
    if options.interval < SHORTEST_INTERVAL:
        raise Usage("--interval is at least 100ms")
    if not 0 <= options.port <= LARGEST_PORT:
        raise Usage(f"--port is from 0, which takes a free one, to {LARGEST_PORT}")
    token = _break_token(options)
    try:
        from leaselock._web import server
    except ImportError as error:
        from leaselock._extras import install_command

        command = install_command("web", str(error.name))
        raise Misconfigured(f"web needs {error.name}, which is not installed: {command}") from error
    import asyncio
    import logging

    logging.basicConfig(format="leaselock: %(message)s")
    try:
        listener = server.listen(options.host, options.port)
    except OSError as error:
        raise Misconfigured(f"cannot listen on {options.host}:{options.port}: {error}") from error
    with listener:
        asyncio.run(_serve(options, listener, server.url_of(listener), token))
    return 0


def _break_token(options: WebOptions) -> str | None:
    """Return the token of --break-token-file, or a new one for --allow-break; None for neither."""
    path = options.break_token_file
    if path is None:
        return secrets.token_urlsafe(24) if options.allow_break else None
    try:
        with open(0 if path == "-" else path, encoding="ascii", closefd=path != "-") as file:
            token = file.read(LONGEST_TOKEN + 1).strip()
    except (OSError, ValueError) as error:
        raise Misconfigured(f"cannot read the break token from {path}: {error}") from error
    if not SHORTEST_TOKEN <= len(token) <= LONGEST_TOKEN or not token.isprintable():
        raise Misconfigured(
            f"the break token in {path} must be one line of {SHORTEST_TOKEN} to {LONGEST_TOKEN} "
            "ASCII characters: make one with `openssl rand -hex 24`"
        )
    return token


async def _serve(options: WebOptions, listener: socket.socket, url: str, token: str | None) -> None:
    from leaselock import AsyncClient
    from leaselock._web.server import serve

    async with open_as(AsyncClient, options) as client:
        printed = None if options.break_token_file else token
        await serve(
            client,
            listener,
            interval=options.interval,
            break_token=token,
            hosts=(options.host, *options.allow_host),
            announce=lambda: _announce(options, url, printed),
        )


def _announce(options: WebOptions, url: str, token: str | None) -> None:
    """Print where the page is. A *token* that was made here is in the fragment, which no browser
    sends; it is printed once.
    """
    if options.json:
        answer(options, {"url": url, "token": token})
    else:
        print(url if token is None else f"{url}#token={token}", flush=True)
    if options.quiet:
        return
    say(f"the page of {options.store}")
    if token is not None:
        say("locks can be broken by who opens the address with its token")
    elif options.break_token_file:
        say(f"locks can be broken with the token in {options.break_token_file}")
    if not listens_locally(url):
        say("warning: the names, holders and labels of all locks are shown to all who can reach it")
        if not options.allow_host:
            this = platform.node() or "NAME"
            say(
                "browsers and Prometheus reach it by an address, or as localhost. By a name they "
                f"are refused (421) without --allow-host: --allow-host {this}"
            )
        if options.allow_break or options.break_token_file:
            say("warning: the token is sent unencrypted unless a proxy adds TLS")


def listens_locally(url: str) -> bool:
    """Whether only this machine can reach the page."""
    return url.partition("://")[2].lstrip("[").startswith(LOCAL)
