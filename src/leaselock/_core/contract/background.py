"""A background operation that runs at most once at a time: the renewer, a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from leaselock._core.contract.effects import FOREVER, Signal, Spawn, Wait
from leaselock.errors import OutcomeUnknown

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from leaselock._core.contract.effects import Operation

T = TypeVar("T")


class Background:
    """Whether the operation runs, and how to start it."""

    __slots__ = ("begun", "running")

    def __init__(self) -> None:
        self.running = False
        self.begun = False

    async def start(self, make: Callable[[], Operation[None]], name: str) -> None:
        """Start it, unless it runs. After an interruption here it can be started again."""
        if self.running:
            return
        self.running = True
        operation = self._run(make)
        try:
            await Spawn(operation, name)
        except BaseException:
            if not self.begun:
                self.running = False
                operation.close()
            raise

    async def _run(self, make: Callable[[], Operation[None]]) -> None:
        self.begun = True
        try:
            await make()
        finally:
            self.running = self.begun = False


async def uninterrupted(make: Callable[[], Awaitable[T]], name: str) -> T:
    """Run an operation in the background, and wait for it: an interruption of the caller ends the
    wait, and not the operation.
    """
    ended = Signal()
    results: list[T] = []
    errors: list[Exception] = []

    async def run() -> None:
        try:
            results.append(await make())
        except Exception as error:
            # Raised again below.
            errors.append(error)
        finally:
            ended.set()

    await Background().start(run, name)
    await Wait(ended, FOREVER)
    if errors:
        raise errors[0]
    if not results:
        raise OutcomeUnknown("the client was closed meanwhile")
    return results[0]
