"""Maintenance of the database: doctor, setup, garbage collection.

The tables are created by `Client.setup` and `leaselock setup` only. Creating them takes rights that
a program which only locks does not need, and belongs to the migrations (hazard J19).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock.backends.sql.doctor import examine
from leaselock.backends.sql.lease import Lease
from leaselock.backends.sql.lock_row import Requester, micros
from leaselock.backends.sql.server_info import SCHEMA, check_version
from leaselock.backends.sql.statements import SqlError
from leaselock.core import rules
from leaselock.core.backend import CollectGarbage, Doctor, Setup

if TYPE_CHECKING:
    from leaselock.backends.sql.executor import Executor
    from leaselock.backends.sql.lock_row import SqlLockRow
    from leaselock.backends.sql.server_info import ServerInfo
    from leaselock.backends.sql.statements import Values

MAINTENANCE = (Doctor, Setup, CollectGarbage)


async def maintain(request: object, server: ServerInfo, executor: Executor) -> object:
    """Carry out a maintenance request."""
    if isinstance(request, Setup):
        return await _set_up(server, request.dry, executor)
    if isinstance(request, CollectGarbage):
        return await _collect_garbage(server, executor)
    return await examine(server, executor)


async def _set_up(server: ServerInfo, dry: bool, executor: Executor) -> tuple[str, ...]:
    found = await _version(server, executor)
    if found == SCHEMA:
        return ()
    if found is not None:
        check_version(server, found)
    schema = server.dialect.schema
    if not dry:
        await executor.execute(("begin setup",))
        for statement in schema:
            await executor.execute((("raw", {"text": statement}),))
        await executor.execute(("end setup",))
    return tuple(f"{statement};" for statement in schema)


async def _version(server: ServerInfo, executor: Executor) -> str | None:
    """The version of the tables; None if there are none."""
    try:
        (version,) = await executor.execute((("fact", {"fact": "schema"}),))
    except SqlError as error:
        if error.state not in server.dialect.missing:
            raise
        return None
    row = version.one()
    return row[0] if row else None


async def _collect_garbage(server: ServerInfo, executor: Executor) -> int:
    """Remove what has expired, and the rows of names that were not locked for the token TTL."""
    (now,) = await executor.execute(("now",))
    clock: int = now.rows[0][0]
    kept = server.target.token_ttl
    values = {"now": clock, "before": clock - micros(kept) if kept else 0}
    (names,) = await executor.execute((("expired names", values),))
    lease = Lease(server.dialect)
    for (name,) in names.rows:
        await lease.transaction(name, "", Requester("", False, None), _collect, executor)
    recent = {"before": clock - micros(rules.RECHECK_INTERVAL)}
    collected = await executor.execute((("collect wakeups", values), ("collect sessions", recent)))
    rows = await _sweep_rows(server, values, executor)
    _, locks = await executor.execute((("raise floor", values), ("collect locks", values)))
    return len(names.rows) + sum(result.amount for result in collected) + rows + locks.amount


async def _sweep_rows(server: ServerInfo, values: Values, executor: Executor) -> int:
    """Remove the rows of protocol "row" one by one, so that each blocks others only briefly."""
    (unused,) = await executor.execute((("unused rows", values),))
    count = 0
    for (name,) in unused.rows:
        try:
            (result,) = await executor.execute((("collect row", {"name": name}),))
        except SqlError as error:
            if error.state not in server.dialect.contended:
                raise
        else:
            count += result.amount
    return count


def _collect(row: SqlLockRow) -> None:
    """Remove holds that have ended, and grant what can be granted. The transaction itself removes
    dead waiters.
    """
    rules.expire_and_grant(row)
