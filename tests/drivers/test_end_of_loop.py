"""`asyncio.run` ends while a client that was not closed is in the middle of an operation: at each
suspension of each operation. No task is left to the closed loop, and nothing is reported.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import sys
from typing import TYPE_CHECKING, Any

import pytest
from testkit.servers.redis import Redis, as_masters

import leaselock
from leaselock.errors import AcquireTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator, Iterator

    Operation = Callable[[leaselock.AsyncClient], Coroutine[Any, Any, object]]

LEASE = 60.0


@pytest.fixture(scope="module")
def server() -> Iterator[Redis]:
    with Redis() as server:
        yield server


class Until:
    """A coroutine that calls a function at one of its suspensions."""

    def __init__(
        self,
        operation: Coroutine[Any, Any, object],
        suspensions: int,
        end: Callable[[], object],
    ) -> None:
        self.operation = operation
        self.left = suspensions
        self.end = end

    def __await__(self) -> Generator[Any, Any, bool]:
        step: Callable[[Any], Any] = self.operation.send
        value: object = None
        while True:
            try:
                awaited = step(value)
            except StopIteration:
                self.end()
                return True
            self.left -= 1
            if not self.left:
                self.end()
            try:
                step, value = self.operation.send, (yield awaited)
            except BaseException as error:
                step, value = self.operation.throw, error


async def hold(client: leaselock.AsyncClient) -> None:
    async with client.lock("a", lease=LEASE):
        pass


async def wait(client: leaselock.AsyncClient) -> None:
    """Two tasks wait for a lock that a third one holds."""

    async def give_up() -> None:
        with pytest.raises(AcquireTimeout):
            await client.lock("a", lease=LEASE).acquire(timeout=0.05)

    async with client.lock("a", lease=LEASE):
        await asyncio.gather(give_up(), give_up())


async def do(coroutine: Until) -> bool:
    return await coroutine


def run(client: leaselock.AsyncClient, operation: Operation, suspensions: int) -> bool:
    """End at a suspension of the operation; return whether it had ended before."""

    async def main() -> bool:
        reached = asyncio.Event()
        task = asyncio.create_task(do(Until(operation(client), suspensions, reached.set)))
        await reached.wait()
        await asyncio.sleep(0)
        return task.done()

    return asyncio.run(main())


@pytest.mark.parametrize("operation", [hold, wait], ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("masters", [1, 3])
def test_no_task_is_left_to_a_closed_loop(
    server: Redis,
    masters: int,
    operation: Operation,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ignored: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    url = ",".join(as_masters(f"127.0.0.1:{server.port}")[:masters])
    for suspensions in itertools.count(1):
        server.ask("FLUSHALL")
        client = leaselock.AsyncClient(url)
        ended = run(client, operation, suspensions)
        gc.collect()
        asyncio.run(client.close())
        assert not ignored, (suspensions, ignored[0].exc_value, ignored[0].object)
        assert not caplog.messages, suspensions
        if ended:
            break
    assert suspensions > 3
