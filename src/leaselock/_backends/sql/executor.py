"""Execute scripts on a connection, as an operation that every driver can run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.connection import Execute
from leaselock._core.contract.effects import Call

if TYPE_CHECKING:
    from leaselock._backends.sql.connection import Connection
    from leaselock._backends.sql.statements import Dialect, Result, Script


class Executor:
    """Executes scripts on one connection, each by the same deadline."""

    __slots__ = ("connection", "dialect", "until")

    def __init__(self, connection: Connection, dialect: Dialect, until: float) -> None:
        self.connection = connection
        self.dialect = dialect
        self.until = until

    async def execute(self, script: Script) -> list[Result]:
        """One result for each part; SqlError if the server refuses one."""
        connection = self.connection
        text, added = self.dialect.text(script, connection.prepared)
        names = (part if isinstance(part, str) else part[0] for part in script)
        begins = any(name.startswith("begin") for name in names)
        connection.complete = not (begins or added) and connection.usable
        try:
            results: list[Result] = await Call(connection, Execute(text), self.until)
            if added and connection.prepared is not None:
                connection.prepared.update(added)
                results = results[len(added) :]
        except Exception:
            # It is not known which statements were prepared.
            connection.prepared = None
            raise
        except BaseException:
            if not connection.resumable:
                connection.prepared = None
            raise
        return self.dialect.grouped(script, results)
