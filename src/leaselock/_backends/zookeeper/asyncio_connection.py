"""A ZooKeeper connection for asyncio: kazoo's thread wakes the event loop, and no thread waits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from leaselock._backends.zookeeper.connection import SECOND_LOOK, Connection
from leaselock._backends.zookeeper.requests import CloseSession, ServerStatus

if TYPE_CHECKING:
    Loop = asyncio.AbstractEventLoop

LONGEST_TIMER = 86400.0


class AsyncioConnection(Connection):
    """A connection for tasks."""

    async def call(self, request: object, until: float) -> object:
        """Send the request, and wait for its reply."""
        if isinstance(request, (CloseSession, ServerStatus)):
            return await asyncio.to_thread(self.run_blocking, request)
        loop = asyncio.get_running_loop()
        notified: asyncio.Future[None] = loop.create_future()
        pending = self.begin(request, lambda: _notify(loop, notified))

        def time_out() -> None:
            if self.looks_again(request, until):
                loop.call_later(SECOND_LOOK, _resolve, notified)
            else:
                _resolve(notified)

        timer = loop.call_later(min(until - self.now(), LONGEST_TIMER), time_out)
        try:
            await notified
        finally:
            timer.cancel()
            pending.cancel()
        return pending.result()


def _notify(loop: Loop, future: asyncio.Future[None]) -> None:
    # kazoo's thread may have a reply for a loop that is closed; then no task waits for it.
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(_resolve, future)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
