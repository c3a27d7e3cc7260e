"""What a driver asks questions of, and what happens to it when this process forks."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable


class Node(Protocol):
    """One thing that answers requests, blocking: a store, or the ear that listens to it."""

    def call(self, request: object, until: float) -> object:
        """The answer; Refused or Unknown when there is none by *until*."""
        ...

    def interrupt(self) -> None:
        """Let a call that is under way for ever end with Refused; from any thread."""
        ...

    def close(self) -> None:
        """Give back what the node holds of the system; the next call would begin anew."""
        ...

    def after_fork(self) -> None:
        """Let go, in a forked child, of what belongs to the parent, without disturbing it."""
        ...


class AioNode(Protocol):
    """The same for asyncio: it is asked by awaiting, from the loop that its driver serves."""

    def call(self, request: object, until: float) -> Awaitable[object]:
        """The answer. A request whose asker is cancelled is sent before what follows it."""
        ...

    def interrupt(self) -> None:
        """Let a call that is under way for ever end with Refused."""
        ...

    async def finish(self) -> None:
        """Return when everything asked so far is done, and nothing runs in the loop any more."""
        ...

    def retire(self) -> None:
        """The same where no loop runs: the one that asked is closed."""
        ...

    def close(self) -> None:
        """Give back what the node holds of the system; the next call would begin anew."""
        ...

    def after_fork(self) -> None:
        """Let go, in a forked child, of what belongs to the parent, without disturbing it."""
        ...


class Forks(Protocol):
    """A driver, as far as forks go."""

    def after_fork(self) -> None:
        """Forget, in a forked child, everything of the parent."""
        ...


# Every driver alive. A forked child must not share a socket, a descriptor or a hold (F6, F7).
DRIVERS: weakref.WeakSet[Forks] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for driver in list(DRIVERS):
        driver.after_fork()


def forked_message() -> str:
    """Why a hold is not one any more after a fork."""
    return f"it stayed with process {os.getppid()}, which forked this one"


os.register_at_fork(after_in_child=_after_fork_in_child)
