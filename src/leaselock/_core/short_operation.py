"""An operation that one request to the store completes as a rule.

`begin` makes that request, `finish` takes its reply. Both are plain functions, one step each, and
the only wait is between them. What is not as usual (the lock is taken, an error, a listener to
call) they leave to `complete`, a coroutine that goes on from there.

A driver calls these three itself, so a free lock costs no coroutine and no effect beyond the wait
for the reply. Awaiting a short operation does the same, in the core and in the simulator.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeVar

from leaselock._core.effects import Call

if TYPE_CHECKING:
    from collections.abc import Generator

    from leaselock._core.effects import Operation

T_co = TypeVar("T_co", covariant=True)


class Progress(enum.Enum):
    """What `finish` returns instead of a result."""

    UNFINISHED = enum.auto()


Unfinished = Literal[Progress.UNFINISHED]
UNFINISHED: Final = Progress.UNFINISHED


class ShortOperation(Generic[T_co]):
    """An operation that one request completes as a rule."""

    def begin(self) -> Call[Any] | T_co | Unfinished:
        """The request to carry out; or the result, if none is needed; or UNFINISHED."""
        raise NotImplementedError

    def finish(self, reply: Any) -> T_co | Unfinished:
        """The result, by the reply; or UNFINISHED."""
        raise NotImplementedError

    def complete(self, error: BaseException | None) -> Operation[T_co]:
        """Go on where the others have ended, or clean up after the *error* that has ended one of
        them, or the request between them.
        """
        raise NotImplementedError

    def __await__(self) -> Generator[Any, Any, T_co]:
        return self.carry_out().__await__()

    async def carry_out(self) -> T_co:
        """The same as a coroutine."""
        error: BaseException | None = None
        try:
            outcome = self.begin()
            if isinstance(outcome, Call):
                outcome = self.finish(await outcome)
            if outcome is not UNFINISHED:
                return outcome
        except BaseException as raised:
            error = raised
        try:
            return await self.complete(error)
        finally:
            del error  # it has this frame in its traceback
