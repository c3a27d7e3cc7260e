"""A background operation that runs at most once at a time: the renewer, a listener."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._core.effects import Spawn

if TYPE_CHECKING:
    from collections.abc import Callable

    from leaselock._core.effects import Operation


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
