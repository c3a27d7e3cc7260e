"""Connections of asyncio: what a request leaves when its connection ends."""

from __future__ import annotations

import asyncio
import gc
import socket
from typing import TYPE_CHECKING, Any

import pytest

from leaselock._backends.wire import READ, TaskWire
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Generator


class Silent(TaskWire):
    """A connection whose peer never answers."""

    def __init__(self) -> None:
        super().__init__()
        self.socket, self.peer = socket.socketpair()

    def now(self) -> float:
        return 0.0

    def fileno(self) -> int:
        return self.socket.fileno()

    def steps(self, request: Any, until: float) -> Generator[Any, Any, Any]:
        yield READ

    def release(self) -> None:
        self.socket.close()
        self.peer.close()


async def _end(waits: bool) -> list[dict[str, Any]]:
    reports: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: reports.append(context))
    wire = Silent()
    future = wire.call("request", 60.0)
    wire.close()
    if waits:
        with pytest.raises(OutcomeUnknown, match="the connection was closed"):
            await future
    del future
    gc.collect()
    return reports


@pytest.mark.parametrize("waits", [True, False], ids=["awaited", "abandoned"])
def test_the_end_of_a_connection_is_reported_to_the_task_that_waits_only(waits: bool) -> None:
    assert asyncio.run(_end(waits)) == []
