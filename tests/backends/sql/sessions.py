"""Connections of the library that a test uses directly, and coroutines that never wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from leaselock._backends.sql.executor import Executor
from leaselock._core.contract.effects import Sleep
from leaselock._drivers import system_env
from leaselock._drivers.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.statements import Result, Script
    from leaselock._backends.sql.store import SqlStore

T = TypeVar("T")
ANSWERED = 900.0


def finished(operation: Awaitable[T]) -> T:
    """Return the result of protocol text whose executor answers at once. It does not sleep."""
    steps = operation.__await__()
    try:
        while True:
            assert isinstance(next(steps), Sleep)
    except StopIteration as done:
        result: T = done.value
        return result


class Direct:
    """Connections of one store."""

    def __init__(self, store: SqlStore) -> None:
        self.store = store
        self.dialect = store.pool.dialect
        self.driver = Threads((store,))

    def connect(self) -> Connection:
        """A connection that is ready for use."""
        return self.driver.run(self.store.pool.connect(system_env.now() + ANSWERED))

    def executor(self, connection: Connection, until: float | None = None) -> Executor:
        """Executes scripts on it."""
        return Executor(connection, self.dialect, until or system_env.now() + ANSWERED)

    def execute(self, connection: Connection, script: Script) -> list[Result]:
        """Execute one script."""
        return self.driver.run(self.executor(connection).execute(script))

    def run(self, operation: Any) -> Any:
        """Run an operation that awaits connections."""
        return self.driver.run(operation)

    def close(self) -> None:
        """Close all connections."""
        self.driver.close()
