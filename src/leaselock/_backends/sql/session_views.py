"""Looking at the sessions of all clients, by the protocols "row" and "advisory", and ending one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaselock._backends.sql.keys import lock_number, lock_word
from leaselock._backends.sql.session_records import (
    ForeignSession,
    SessionRow,
    holders,
    lock_state,
)
from leaselock._core.contract.backend import Broken, matching
from leaselock._core.contract.effects import Sleep

if TYPE_CHECKING:
    from leaselock._backends.sql.session_locks import SessionLocks, Shared
    from leaselock._backends.sql.statements import Part
    from leaselock._core.contract.backend import BreakLock, Inspect, LockState

# How often `break_lock` looks whether the session has ended, in seconds.
BREAK_POLL = 0.01


async def inspect(
    locks: SessionLocks, protocol: str, request: Inspect, shared: Shared
) -> tuple[LockState, ...]:
    """Holders and waiters whose sessions are alive. Another program that holds a lock is found if
    the lock is named, or waited for.
    """
    rows = await _sessions(protocol, request.name or "", shared)
    names = matching((row.name for row in rows), request.pattern)
    states = []
    for name in names if request.name is None else [request.name]:
        of_name = [row for row in rows if row.name == name]
        held = holders(of_name) or await _foreign_sessions(locks, protocol, name, shared)
        states.append(lock_state(name, of_name, held))
    return tuple(states)


async def break_lock(
    locks: SessionLocks, protocol: str, request: BreakLock, shared: Shared
) -> Broken:
    """End the session of a holder; there is no other way to take its lock. The server ends it some
    time later.
    """
    rows = await _held(locks, protocol, request.name, shared)
    meant = next((row for row in rows if row.hold().is_meant(request.token)), None)
    if meant is None:
        return Broken(rows[0].hold() if rows else None, False, ())
    held = meant.hold()
    ending: Part = ("end stranger", {"backend": meant.backend})
    if held.client:
        values = {"backend": meant.backend, "liveness_key": locks.liveness_key(held.id)}
        ending = ("end session", values)
    await shared((ending,))
    while True:
        rows = await _held(locks, protocol, request.name, shared)
        if (meant.id, meant.token) not in [(row.id, row.token) for row in rows]:
            return Broken(held, True, ())
        await Sleep(locks.now() + BREAK_POLL)


async def _held(locks: SessionLocks, protocol: str, name: str, shared: Shared) -> list[SessionRow]:
    rows = holders(await _sessions(protocol, name, shared))
    return rows or await _foreign_sessions(locks, protocol, name, shared)


async def _sessions(protocol: str, name: str, shared: Shared) -> list[SessionRow]:
    (result,) = await shared((("sessions", {"protocol": protocol, "name": name}),))
    return [SessionRow(*row) for row in result.rows]


async def _foreign_sessions(
    locks: SessionLocks, protocol: str, name: str, shared: Shared
) -> list[SessionRow]:
    """The session of another program that holds the lock, if there is one."""
    if protocol == "row" and not locks.postgres:
        return []  # no one but an administrator may read who has locked a row
    key = lock_number(name) if locks.postgres else lock_word(name)
    statement: Part = (f"{protocol} stranger", {"name": name, "key": key})
    (result,) = await shared((statement,))
    return [ForeignSession(*row).row(name) for row in result.rows]
