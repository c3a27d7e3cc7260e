"""A lock of asyncio: what makes it, for those who run many tasks, and one task that uses it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from benchmarks.turns import Turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType


class Lock(Protocol):
    """What all have in common."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> object: ...


class Looped:
    """One client in a loop of its own. Each turn is one task, so that its grants have an owner."""

    version: ClassVar[str]
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    @staticmethod
    def opened(url: str) -> AbstractAsyncContextManager[Callable[[str], Lock]]:
        """A client, as what makes a lock of a name."""
        raise NotImplementedError

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.over = asyncio.Event()
        self.lock = self.runner.run(self._begin(Path(folder, "url").read_text()))

    async def _begin(self, url: str) -> Lock:
        made: asyncio.Future[Lock] = asyncio.get_running_loop().create_future()
        self.life = asyncio.create_task(self._live(url, made))
        ends: list[asyncio.Future[Any]] = [self.life, made]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self.life.done():
            await self.life
        return await made

    async def _live(self, url: str, made: asyncio.Future[Lock]) -> None:
        # Some clients want to be closed by the task that opened them.
        async with self.opened(url) as lock_of:
            made.set_result(lock_of("bench"))
            await self.over.wait()

    def pairs(self, count: int) -> Turn:
        """Take it and give it back, so many times."""
        return self.runner.run(_pairs(self.lock, count))

    def acquire(self) -> None:
        """It stays in its loop."""
        raise NotImplementedError

    def release(self) -> None:
        """It stays in its loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the client."""
        self.over.set()
        self.runner.run(self._end())
        self.runner.close()

    async def _end(self) -> None:
        await self.life


async def _pairs(lock: Lock, count: int) -> Turn:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        async with lock:
            pass
    return Turn((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)
