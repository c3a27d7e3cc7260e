"""The steps of taking a lock, which `alchemy` and `plain` carry out, blocking or asynchronously.

A generator yields steps and is sent their results. An error of the database is raised at the step
that caused it. So taking a lock is written once, without a connection or an event loop.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, NamedTuple

from leaselock._backends.sql.given_connections import driver_of
from leaselock.errors import AcquireTimeout, NotApplied

if TYPE_CHECKING:
    from collections.abc import Mapping


class Execute(NamedTuple):
    """Execute a statement in the transaction. The result is its first row, or None."""

    statement: str
    parameters: Mapping[str, object] = {}


class CreateRow(NamedTuple):
    """Create the row of the lock, if it is missing, on another connection."""

    name: str


class Autocommit(NamedTuple):
    """Whether every statement is committed at once; None if the driver does not say."""


class Invalidate(NamedTuple):
    """Invalidate the connection, because the server has ended the transaction."""


class Sleep(NamedTuple):
    """Wait for a number of seconds."""

    seconds: float


Step = Execute | CreateRow | Autocommit | Invalidate | Sleep
Steps = Generator[Step, Any, None]


def code_of(error: Exception) -> object:
    """The SQLSTATE or the number of an error of the database; None for other errors."""
    cause = getattr(error, "orig", None)
    if cause is None and driver_of(error) is None:
        return None
    cause = error if cause is None else cause
    state = getattr(cause, "sqlstate", None) or getattr(cause, "pgcode", None)
    # Drivers of MySQL may have both. The number is more specific.
    number = cause.args[0] if cause.args and isinstance(cause.args[0], int) else None
    return number or state


def autocommits() -> NotApplied:
    """The error for a connection without transactions."""
    return NotApplied(
        "this connection commits every statement (AUTOCOMMIT), and a lock of the transaction "
        "would end at once: use a connection without that isolation level"
    )


def timed_out(name: str, detail: str = "another transaction holds it") -> AcquireTimeout:
    """The error of a wait that has ended without the lock."""
    return AcquireTimeout(name, None, detail=detail)
