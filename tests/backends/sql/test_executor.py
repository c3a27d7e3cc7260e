"""What an executor knows of its connection after a failure: which statements are prepared there.

The dialect is that of PostgreSQL; the test itself is the driver, which gives the replies.
"""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from leaselock._backends.sql.executor import Executor
from leaselock._backends.sql.statements import SqlError
from leaselock.errors import OutcomeUnknown


class Preparing:
    """A dialect that prepares the statement `now`."""

    def text(self, script: Any, prepared: set[str] | None) -> tuple[str, list[str]]:
        """Return the text, and the names of what it prepares."""
        return "PREPARE now AS SELECT 1; EXECUTE now", [] if prepared is None else ["now"]

    def grouped(self, script: Any, results: list[Any]) -> list[Any]:
        """Return the results as they are."""
        return results


def execution(connection: Any) -> Any:
    dialect: Any = Preparing()
    return Executor(connection, dialect, 1.0).execute(("now",))


def test_prepared_statements_are_remembered() -> None:
    connection = SimpleNamespace(prepared=set(), usable=True, resumable=False)
    running = execution(connection)
    running.send(None)
    with pytest.raises(StopIteration) as ended:
        running.send(["prepared", "row"])
    assert (ended.value.value, connection.prepared) == (["row"], {"now"})


def test_an_interrupt_before_they_are_remembered_counts_as_a_failure() -> None:
    class Interrupted(set[str]):
        def update(self, *_: object) -> None:
            raise KeyboardInterrupt

    connection = SimpleNamespace(prepared=Interrupted(), usable=True, resumable=False)
    running = execution(connection)
    running.send(None)
    with pytest.raises(KeyboardInterrupt):
        running.send(["prepared", "row"])
    assert connection.prepared is None


@pytest.mark.parametrize(
    "error", [SqlError("42P05", ""), OutcomeUnknown("silence"), asyncio.CancelledError()]
)
def test_after_a_failure_nothing_is_prepared_again(error: BaseException) -> None:
    """Otherwise the next request would prepare a statement that exists, and be refused."""
    connection = SimpleNamespace(prepared=set(), usable=True, resumable=False)
    running = execution(connection)
    running.send(None)
    with pytest.raises(type(error)):
        running.throw(error)
    assert connection.prepared is None
