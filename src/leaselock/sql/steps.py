"""What taking a lock consists of: steps that somebody else carries out, blocking or not.

Law: a process yields steps and is sent their answers; an error of the database is raised at the
step that it came from. So how a lock is taken is written once, without connection or event loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock.errors import AcquireTimeout, NotApplied

if TYPE_CHECKING:
    from collections.abc import Mapping


class Ask(NamedTuple):
    """Run a statement in the transaction; its first row, or None."""

    statement: str
    parameters: Mapping[str, object] = {}


class Make(NamedTuple):
    """See to it, on a connection of its own, that the lock has its row."""

    name: str


class Autocommit(NamedTuple):
    """Whether every statement is committed, as far as the driver says; else None."""


class Invalidate(NamedTuple):
    """Let nobody go on as if the transaction were still what it was."""


class Pause(NamedTuple):
    """Wait for so many seconds."""

    seconds: float


Step = Ask | Make | Autocommit | Invalidate | Pause
Taking = Generator[Step, Any, None]


def code_of(error: Exception) -> object:
    """The number or the five letters by which the database calls its error; None for others."""
    cause = getattr(error, "orig", None)
    if cause is None:
        return None
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    # MySQL's drivers may have both; the number is the one that tells errors apart.
    number = cause.args[0] if cause.args and isinstance(cause.args[0], int) else None
    return number or state


def autocommits() -> NotApplied:
    """The error of a connection on which no transaction lasts."""
    return NotApplied(
        "this connection commits every statement (AUTOCOMMIT), and a lock of the transaction "
        "would end at once: use a connection without that isolation level"
    )


def timed_out(name: str, detail: str = "another transaction holds it") -> AcquireTimeout:
    """The error of a wait that has ended without the lock."""
    return AcquireTimeout(name, None, detail=detail)
