"""The page, its files, and the JSON interface behind it, as a Starlette application.

All of it is read from one `Monitor`, which reads the store once in an interval for all viewers. The
only request that changes anything is `/api/break`, and only if there is a token for it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import zlib
from contextlib import aclosing, asynccontextmanager
from importlib import resources
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from leaselock import LeaselockError, NotHeld, __version__
from leaselock._web.feed import Feed, detail
from leaselock._web.metrics import StoreMetrics
from leaselock._web.security import Document, SecurityMiddleware, failure
from leaselock._web.sparse_log import SparseLog
from leaselock.documents import SCHEMA, holder_document, lock_document
from leaselock.live import Monitor

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Iterable

    from starlette.requests import Request
    from starlette.types import Receive, Scope, Send

    from leaselock import AsyncClient, Holder
    from leaselock.live import View

FILES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "graph.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
OPENAPI = "openapi.json"
# Seconds between two reads while there is no viewer: so that recent changes are known to the next.
IDLE_INTERVAL = 10.0
# Of each stream: 8 KiB of text in 32 KiB of memory, for there may be 200 of them. 16: with gzip's
# header.
GZIP_WINDOW, GZIP_MEMORY = 16 + 13, 6
# Maximum number of viewers; further ones get 503.
MOST_VIEWERS = 200
MOST_WAITERS = 200
LONGEST_BODY = 16_384
LONGEST_MESSAGE = 1_000
# Seconds within which the body of a request must arrive.
BODY_TIMEOUT = 10.0

logger = logging.getLogger("leaselock.web")


class Stream(StreamingResponse):
    """Server-sent events for one viewer of the page, or 503 if there are too many viewers."""

    def __init__(self, page: Page, events: AsyncGenerator[str, None], *, gzip: bool) -> None:
        headers = {"X-Accel-Buffering": "no"}  # nginx would keep events back
        content: AsyncGenerator[str | bytes, None] = events
        if gzip:
            headers |= {"Content-Encoding": "gzip", "Vary": "Accept-Encoding"}
            content = compressed(events)
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self.page = page

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events. Nothing is awaited between the check of the limit and the count."""
        if self.page.viewers >= self.page.most_viewers:
            full = failure(503, "busy", f"there are {self.page.most_viewers} viewers already")
            await full(scope, receive, send)
            return
        self.page.viewers += 1
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.page.viewers -= 1


async def compressed(events: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    """The events, each complete when it is sent: the state of 20,000 locks takes 7 MB otherwise."""
    compressor = zlib.compressobj(1, zlib.DEFLATED, GZIP_WINDOW, GZIP_MEMORY)
    async with aclosing(events):
        async for text in events:
            yield compressor.compress(text.encode()) + compressor.flush(zlib.Z_SYNC_FLUSH)


def accepts_gzip(request: Request) -> bool:
    """Whether the viewer reads gzip."""
    words = request.headers.get("accept-encoding", "").replace(" ", "").lower().split(",")
    return any(word.partition(";")[0] == "gzip" and not word.endswith(";q=0") for word in words)


class Page:
    """The handlers, and what they share."""

    def __init__(
        self, client: AsyncClient, interval: float, token: str | None, most_viewers: int
    ) -> None:
        self.client = client
        self.token = token
        self.interval = interval
        self.monitor = Monitor(client, interval=interval)
        self.feed = Feed(self.monitor)
        self.metrics = StoreMetrics(lambda: self.feed.view)
        self.viewers = 0
        self.most_viewers = most_viewers
        self.refused = SparseLog()
        self.stopping = asyncio.Event()
        folder = resources.files("leaselock._web") / "static"
        self.files = {name: (folder / name).read_bytes() for name in (*FILES, OPENAPI)}

    def routes(self) -> list[Route]:
        """All routes; openapi.json describes those that do not serve a file."""
        return [
            Route("/", self.file),
            *(Route(f"/{name}", self.file) for name in FILES if name != "index.html"),
            Route("/api/openapi.json", self.openapi),
            Route("/api/info", self.info),
            Route("/api/locks", self.locks),
            Route("/api/lock", self.lock),
            Route("/api/graph", self.graph),
            Route("/api/events", self.events),
            Route("/api/break", self.break_lock, methods=["POST"]),
            Route("/metrics", self.scrape),
            Route("/healthz", self.health),
        ]

    # --- files ----------------------------------------------------------------------------------

    async def file(self, request: Request) -> Response:
        """A file of the page."""
        name = request.scope["path"].rpartition("/")[2] or "index.html"
        return Response(self.files[name], media_type=FILES[name])

    async def openapi(self, request: Request) -> Response:
        """The description of the interface."""
        return Response(self.files[OPENAPI], media_type="application/json")

    # --- reading --------------------------------------------------------------------------------

    async def info(self, request: Request) -> Response:
        """What the page must know before anything else."""
        return Document(
            {
                "schema": SCHEMA,
                "version": __version__,
                "backend": self.client.url,
                "interval": self.interval,
                "can_break": self.token is not None,
            }
        )

    async def locks(self, request: Request) -> Response:
        """All locks with their holders and waiters, as `leaselock ls --json`."""
        view = await self.feed.next()
        head = {"schema": SCHEMA, "backend": self.client.url, "at": view.at, "error": view.error}
        stuck = view.deadlocked
        locks = [lock_document(lock, deadlocked=lock.name in stuck) for lock in view.locks]
        return Document(head | {"locks": locks, "complete": not self.client.indexed})

    async def lock(self, request: Request) -> Response:
        """One lock with its queue and recent changes."""
        name = request.query_params.get("name")
        if name is None:
            return failure(400, "usage", "name is missing")
        details = detail(await self.feed.next(), name, MOST_WAITERS)
        if details is None:
            return failure(404, "free", "free, and nothing happened to it lately")
        return Document(details)

    async def graph(self, request: Request) -> Response:
        """The waits-for graph."""
        await self.feed.next()
        return Document(self.feed.graph(request.query_params.get("name")))

    async def events(self, request: Request) -> Response:
        """The state of all locks and, from then on, each change, as server-sent events."""
        if request.method == "HEAD":
            return Response(media_type="text/event-stream")
        return Stream(self, self._stream(), gzip=accepts_gzip(request))

    async def _stream(self) -> AsyncGenerator[str, None]:
        stop = asyncio.create_task(self.stopping.wait())
        seen = 0
        try:
            while not stop.done():
                reading = asyncio.ensure_future(self.feed.next(seen))
                await asyncio.wait({reading, stop}, return_when=asyncio.FIRST_COMPLETED)
                if not reading.done():
                    reading.cancel()
                    break
                number = (await reading).number
                yield self.feed.text(seen)
                seen = number
        finally:
            stop.cancel()

    async def scrape(self, request: Request) -> Response:
        """The state of the store for Prometheus."""
        await self.feed.next()
        text, content_type = self.metrics.text(request.headers.get("accept", ""))
        return Response(text, headers={"Content-Type": content_type})

    async def health(self, request: Request) -> Response:
        """Whether the store answers."""
        view = await self.feed.next()
        if view.error is not None:
            return PlainTextResponse(f"{view.error}\n", 503)
        return PlainTextResponse("ok\n")

    # --- breaking -------------------------------------------------------------------------------

    async def break_lock(self, request: Request) -> Response:
        """End one hold, given by its token, by force."""
        if self.token is None:
            return failure(403, "permission", "read-only: leaselock web --allow-break allows it")
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        expected = self.token.encode()
        if scheme.lower() != "bearer" or not secrets.compare_digest(given.encode(), expected):
            kind = "a wrong token" if given else "no token"
            self.refused.warning("%s sent %s to break a lock: refused", _sender(request), kind)
            return failure(401, "permission", "a break token is needed: see leaselock web --help")
        if request.headers.get("content-type", "").partition(";")[0] != "application/json":
            return failure(415, "usage", "Content-Type must be application/json")
        try:
            async with asyncio.timeout(BODY_TIMEOUT):
                order = _order(await _body(request))
        except TimeoutError:
            return failure(408, "usage", f"the body did not arrive within {BODY_TIMEOUT:g} s")
        if isinstance(order, str):
            return failure(400, "usage", order)
        reply = await self._break(*order, _sender(request))
        if reply.status_code != 200:
            who, (name, token, message) = _sender(request), order
            logger.warning("%s did not break %r, token %d: %r", who, name, token, message)
        return reply

    async def _break(self, name: str, token: int, message: str, sender: str) -> Response:
        hold = _find(await self.feed.next(), name, token)
        if hold is None:  # perhaps it is younger than the view
            hold = _find(await self.feed.next(self.feed.view.number), name, token)
        if hold is None:
            return failure(409, "not held", "not held with this token any more")
        try:
            broken = await self.monitor.break_lock(name, hold)
        except NotHeld as error:
            return failure(409, "not held", str(error))
        except LeaselockError as error:
            return failure(503, "unreachable", str(error))
        if broken is None:
            return failure(409, "not held", "it has become free")
        logger.warning("%s broke %r, held by %s, token %d: %r", sender, name, hold, token, message)
        return Document({"name": name, "broken": holder_document(broken)})


def _sender(request: Request) -> str:
    """The address that a request came from."""
    return request.client.host if request.client is not None else "an unknown address"


def _find(view: View, name: str, token: int) -> Holder | None:
    """The holder of a lock that has this token."""
    held = next((lock.holders for lock in view.locks if lock.name == name), ())
    return next((hold for hold in held if hold.token == token), None)


async def _body(request: Request) -> bytes | None:
    """The body of a request; None if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LONGEST_BODY:
            return None
    return body


def _order(body: bytes | None) -> tuple[str, int, str] | str:
    """Name, token and message of a request to break a lock; a text if it is wrong."""
    if body is None:
        return "the body is too long"
    try:
        given: Any = json.loads(body)
        name, token, message = given["name"], given["token"], given["message"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return "the body must be a JSON object with name, token and message"
    if not isinstance(name, str) or type(token) is not int or not isinstance(message, str):
        return "name and message are texts, token is a whole number"
    if not message.strip() or len(message) > LONGEST_MESSAGE:
        return f"message says why, in at most {LONGEST_MESSAGE} characters"
    return name, token, message


def application(
    client: AsyncClient,
    *,
    interval: float = 1.0,
    break_token: str | None = None,
    hosts: Iterable[str] = (),
    most_viewers: int = MOST_VIEWERS,
) -> Starlette:
    """The application for the locks of *client*.

    *interval* is the least number of seconds between two reads of the store. With *break_token*,
    who knows it may break locks. *hosts* are names of this server besides localhost. At most
    *most_viewers* streams are open at a time. Its `state.page.stopping` is an event that ends them.
    """
    page = Page(client, interval, break_token, most_viewers)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        reader = asyncio.create_task(_read_when_idle(page), name="leaselock-web")
        try:
            yield
        finally:
            page.stopping.set()
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)
            await page.monitor.close()

    app = Starlette(
        routes=page.routes(),
        lifespan=lifespan,
        middleware=[Middleware(SecurityMiddleware, hosts=hosts)],
    )
    app.state.page = page
    return app


async def _read_when_idle(page: Page) -> None:
    while True:
        await page.feed.next()
        await asyncio.sleep(max(page.interval, IDLE_INTERVAL))
