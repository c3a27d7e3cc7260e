"""Base of the contestants with asyncio: opens a client, and measures one task."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from benchmarks.sampling import Sample

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType


class Lock(Protocol):
    """An asyncio lock as a context manager."""

    async def __aenter__(self) -> object: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> object: ...


class AsyncioContestant:
    """One client in its own event loop. Each measurement is one task, which owns the lock."""

    version: ClassVar[str]
    reentrant: ClassVar[bool] = False
    waits: ClassVar[bool] = False

    @staticmethod
    def opened(url: str) -> AbstractAsyncContextManager[Callable[[str], Lock]]:
        """Open a client; return a function that makes a lock from a name."""
        raise NotImplementedError

    def __init__(self, folder: Path) -> None:
        self.runner = asyncio.Runner()
        self.finished = asyncio.Event()
        self.lock = self.runner.run(self._open(Path(folder, "url").read_text()))

    async def _open(self, url: str) -> Lock:
        made: asyncio.Future[Lock] = asyncio.get_running_loop().create_future()
        self.client_task = asyncio.create_task(self._run_client(url, made))
        ends: list[asyncio.Future[Any]] = [self.client_task, made]
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if self.client_task.done():
            await self.client_task
        return await made

    async def _run_client(self, url: str, made: asyncio.Future[Lock]) -> None:
        # Some clients must be closed by the task that opened them.
        async with self.opened(url) as lock_of:
            made.set_result(lock_of("bench"))
            await self.finished.wait()

    def pairs(self, count: int) -> Sample:
        """Acquire and release, *count* times."""
        return self.runner.run(_pairs(self.lock, count))

    def acquire(self) -> None:
        """Not supported: the lock is used inside its event loop."""
        raise NotImplementedError

    def release(self) -> None:
        """Not supported: the lock is used inside its event loop."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the client."""
        self.finished.set()
        self.runner.run(self._join())
        self.runner.close()

    async def _join(self) -> None:
        await self.client_task


async def _pairs(lock: Lock, count: int) -> Sample:
    wall, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        async with lock:
            pass
    return Sample((time.perf_counter() - wall) / count, (time.process_time() - cpu) / count)
