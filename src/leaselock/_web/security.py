"""Which requests are answered, and the headers of every response.

The page is for people who can reach the port, and for nothing that a browser of theirs runs on
behalf of other sites:

* The Host header must name this machine by an address, by "localhost", or by a name that was
  allowed. Otherwise a site whose name resolves to 127.0.0.1 could read everything (DNS rebinding).
* A request that a browser sends for another site is refused: by Origin, and by Sec-Fetch-Site.
* The content security policy allows the files of this server alone: no inline script or style.
"""

from __future__ import annotations

import ipaddress
import json
import re
from typing import TYPE_CHECKING, Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    # Names of locks may be secret: nothing is kept by a browser or a proxy.
    "Cache-Control": "no-store",
}
HOST = re.compile(r"(?:\[(?P<address>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/]+))(?::\d*)?", re.ASCII)


class SecurityMiddleware:
    """Middleware that refuses what is not for this server, and adds the headers."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str] = ()) -> None:
        self.app = app
        self.hosts = frozenset(host.lower() for host in hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            # There are no web sockets; the lifespan is the application's.
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        refused = self._refused(Headers(scope=scope))
        if refused is None:
            await self.app(scope, receive, send_with_headers)
        else:
            await refused(scope, receive, send_with_headers)

    def _refused(self, headers: Headers) -> Document | None:
        given = headers.getlist("host")
        if len(given) != 1 or not self.is_ours(given[0]):
            return failure(421, "wrong host", "this name is not allowed: see --allow-host")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2].lower() != given[0].lower():
            return failure(403, "other origin", "a request for another site")
        if headers.get("sec-fetch-mode") != "navigate" and headers.get("sec-fetch-site") in (
            *("cross-site", "same-site"),
        ):
            return failure(403, "other origin", "a request for another site")
        return None

    def is_ours(self, host: str) -> bool:
        """Whether a Host header names this server. The port is not compared: it differs behind a
        tunnel, and a name that is rebound keeps its name.
        """
        name = host_name(host)
        return name == "localhost" or name in self.hosts or is_address(name)


def host_name(host: str) -> str:
    """The name or address in a Host header, without port and brackets; empty if it is neither."""
    match = HOST.fullmatch(host.lower())
    return "" if match is None else match["address"] or match["name"]


def is_address(name: str) -> bool:
    """Whether it is an address, which no name server can change."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Document(Response):
    """A JSON document. Text from a store may have halves of characters, which UTF-8 cannot encode:
    everything beyond ASCII is sent as escapes.
    """

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes of the document."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def failure(status: int, kind: str, message: str) -> Document:
    """A response for a request that failed: the word of an error, and a text for people."""
    return Document({"error": kind, "message": message}, status)
