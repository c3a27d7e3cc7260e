"""How many tasks of one client ask for a lock at the same time.

Law: what a question needs while it is under way is there for so many at most; whoever comes later
waits in line, and has the time that he had once it is his turn. A server that does not answer
those before him does not make him wait any longer than he wanted to.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from leaselock.errors import NotApplied

if TYPE_CHECKING:
    from collections.abc import Callable

MOST = 1000


class Turns:
    """Who asks, and who waits to."""

    __slots__ = ("asking", "line", "now", "silent")

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now
        self.asking = 0
        self.line: deque[asyncio.Future[None]] = deque()
        # Whether the last who waited for an answer to its end had none. One who was cancelled has
        # learnt nothing of the server.
        self.silent = False

    def crowded(self) -> bool:
        """Whether one who wants to ask has to wait."""
        return self.asking >= MOST or bool(self.line)

    async def come(self, until: float) -> float:
        """Wait for one's turn; until when the answer may take then."""
        began = self.now()
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.line.append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._next()  # it was ours, and we do not take it
            raise
        now = self.now()
        if self.silent and now >= until:
            self._next()
            raise NotApplied("the store does not answer those who asked before")
        return until + now - began

    def end(self) -> None:
        """One has asked."""
        self.asking -= 1
        if self.line:
            self._next()

    def _next(self) -> None:
        while self.line:
            turn = self.line.popleft()
            if not turn.done():
                turn.set_result(None)
                return
