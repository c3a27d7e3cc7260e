"""What the tests of the page have in common: the application, on a store in memory."""

from __future__ import annotations

import asyncio
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import httpx

import leaselock
from leaselock._web.application import Page, application

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

BASE = "http://127.0.0.1:8470"
_numbers = itertools.count()


class Counting(leaselock.AsyncClient):
    """Counts how often the locks are read."""

    reads = 0

    async def locks(self, pattern: str = "*", *, walk: bool = False) -> list[leaselock.LockInfo]:
        """List the locks."""
        self.reads += 1
        return await super().locks(pattern, walk=walk)


class Site(NamedTuple):
    """The page of a store, and who uses both."""

    page: Page
    http: httpx.AsyncClient
    client: Counting
    """The client of the page."""

    async def read(self) -> None:
        """Read the store once more."""
        await self.page.feed.next(self.page.feed.view.number)

    async def get(self, path: str, **params: str) -> Any:
        """The document at a path, after another read of the store."""
        await self.read()
        reply = await self.http.get(path, params=params)
        assert reply.status_code == 200, reply.text
        return reply.json()


@asynccontextmanager
async def site(url: str | None = None, **options: Any) -> AsyncIterator[Site]:
    """A page without a server; the store is read whenever something asks."""
    url = url or f"memory://web-{next(_numbers)}"
    app = application(client := Counting(url, op_timeout=5.0), **({"interval": 0.0} | options))
    transport = httpx.ASGITransport(app)
    async with client, httpx.AsyncClient(transport=transport, base_url=BASE) as http:
        yield Site(app.state.page, http, client)
        await app.state.page.monitor.close()


def run(play: Callable[[], Awaitable[None]]) -> None:
    """Run an asynchronous test."""

    async def main() -> None:
        await play()

    asyncio.run(main())
